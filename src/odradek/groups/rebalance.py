"""The rebalance of a classic group: join phase, committed generation, sync phase, committed assignment.

```
prepare ─▶ joins ─▶ append generation + 1 ─▶ answer joins ─▶ leader syncs: append assignment ─▶ answer syncs
             ▲                │                     │                          │                      │
             └────────────────┴─────────────────────┴───── members change ─────┴──────────────────────┘
```
"""

from odradek.groups.core import (
    JOIN_DEADLINE,
    PENDING_MEMBERS_DEADLINE,
    PENDING_MEMBERS_TIMEOUT_MS,
    SYNC_DEADLINE,
    GroupCore,
    PendingAppend,
)
from odradek.groups.members import Member
from odradek.groups.messages import PendingMembersOverdue, RebalanceStarted
from odradek.groups.states import COMPLETING, Event, State
from odradek.model import ErrorCode


class GroupRebalance(GroupCore):
    """A group's transition from one generation to the next."""

    _remaining_initial_delay_ms: int | None = None
    """How much longer the first rebalance of an empty group may be delayed, in ms; None in other rebalances."""
    _new_member_added = False
    """Whether a member joined during the current delay of the first rebalance."""

    _generation_is_superseded = False
    """Whether members changed since the generation was appended, so that another one follows without being
    announced."""

    def _prepare_rebalance(self, reason: str, now_ms: int) -> None:
        """Request all members to join again; waiting SyncGroup requests are answered with REBALANCE_IN_PROGRESS."""
        for member in self.members:
            if member.awaiting_sync is not None:
                self._fail_sync(member, ErrorCode.rebalance_in_progress)
                self._reschedule_heartbeat(member, now_ms)
        self._pending_syncs.clear()
        self._deadlines.clear(SYNC_DEADLINE)
        self._effects.append(RebalanceStarted(generation=self.generation, reason=reason))
        first = self.state is State.EMPTY
        self._transition(Event.FIRST_MEMBER_JOINED if first else Event.MEMBERS_CHANGED)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if first and delay_ms > 0:
            self._remaining_initial_delay_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._new_member_added = False
            self._deadlines.set(JOIN_DEADLINE, now_ms + delay_ms)
        elif first:
            self._complete_join_phase(now_ms)
        else:
            self._deadlines.set(JOIN_DEADLINE, now_ms + self.members.rebalance_timeout_ms)
            self._maybe_complete_join_phase(now_ms)

    def _maybe_prepare_rebalance_or_complete_join(self, reason: str, now_ms: int) -> None:
        """Start a rebalance after a change of members, or check whether the current join phase is complete now."""
        if self.state is State.STABLE or self.state in COMPLETING or (self.state is State.EMPTY and self.members):
            self._prepare_rebalance(reason, now_ms)
        elif self.state is State.COMMITTING_GENERATION:
            # All members were waiting already, so the next record follows as soon as this one is committed or has
            # failed. More members may join until then: many joins at once cost two records, not one each.
            self._transition(Event.MEMBERS_CHANGED)
            self._generation_is_superseded = True
        else:
            self._maybe_complete_join_phase(now_ms)

    def _maybe_complete_join_phase(self, now_ms: int) -> None:
        """Complete the join phase if all members have joined and no initial delay is running.

        Pending members alone delay it by `PENDING_MEMBERS_TIMEOUT_MS`, however many ids are handed out meanwhile. No
        id delays two rebalances.
        """
        if self.state is not State.PREPARING_REBALANCE or self._generation_is_superseded:
            return
        if self.members.num_awaiting_join < len(self.members) or (
            self._remaining_initial_delay_ms is not None and self.members
        ):
            return
        if not any(self._pending_members.values()):
            self._complete_join_phase(now_ms)
        elif PENDING_MEMBERS_DEADLINE not in self._deadlines:
            self._deadlines.set(PENDING_MEMBERS_DEADLINE, now_ms + PENDING_MEMBERS_TIMEOUT_MS)

    def _expire_pending_members(self, now_ms: int) -> None:
        """Continue without the pending members; if one joins later, that starts another rebalance."""
        overdue = tuple(member_id for member_id, is_awaited in self._pending_members.items() if is_awaited)
        self._effects.append(PendingMembersOverdue(member_ids=overdue))
        self._pending_members = dict.fromkeys(self._pending_members, False)
        self._complete_join_phase(now_ms)

    def _expire_join(self, now_ms: int) -> None:
        """Handle the end of the initial delay or of the rebalance timeout."""
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self._new_member_added and self._remaining_initial_delay_ms:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._remaining_initial_delay_ms)
            self._remaining_initial_delay_ms -= delay_ms
            self._new_member_added = False
            self._deadlines.set(JOIN_DEADLINE, now_ms + delay_ms)
        else:
            self._complete_join_phase(now_ms)

    def _complete_join_phase(self, now_ms: int) -> None:
        """Remove the members that did not join and append the next generation.

        Static members stay. If only static members are left and none has joined, the join phase is extended.
        """
        self._deadlines.clear(JOIN_DEADLINE)
        self._deadlines.clear(PENDING_MEMBERS_DEADLINE)
        for member in self.members:
            if member.awaiting_join is None and member.instance_id is None:
                self._remove_member(member.member_id)
        if self.members and not self.members.maybe_elect_new_joined_leader():
            self._deadlines.set(JOIN_DEADLINE, now_ms + self.members.rebalance_timeout_ms)
            return
        self._remaining_initial_delay_ms = None
        self._last_generation += 1
        if self.members:
            self._transition(Event.JOIN_PHASE_COMPLETE)
            self._send_leave_replies()
            protocol_name = self.members.select_protocol()
            pending = PendingAppend(kind="generation", generation=self._last_generation, protocol_name=protocol_name)
            self._append(pending, protocol_name, {})
        else:
            self._transition(Event.LAST_MEMBER_LEFT)
            self.generation, self.protocol_name = self._last_generation, None
            pending = PendingAppend(kind="empty", generation=self.generation, replies=self._leave_replies)
            self._leave_replies = []
            self._append(pending, None)

    def _generation_committed(self, pending: PendingAppend, now_ms: int) -> None:
        """Answer all waiting joins and set the deadline for their syncs."""
        if self._generation_is_superseded:
            self._replace_superseded_generation(now_ms)
            return
        if self.state is not State.COMMITTING_GENERATION or pending.generation != self._last_generation:
            return
        self._transition(Event.GENERATION_COMMITTED)
        self.generation = pending.generation
        self.protocol_name = pending.protocol_name
        for member in self.members:
            member.assignment = b""
            request = self.members.remove_awaiting_join(member)
            if request is not None:
                member.is_new = False
                self._effects.append(self._join_reply(request.to, member))
                self._pending_syncs.add(member.member_id)
                self._reschedule_heartbeat(member, now_ms)
        self._deadlines.set(SYNC_DEADLINE, now_ms + self.members.rebalance_timeout_ms)

    def _generation_failed(self, pending: PendingAppend, error: ErrorCode, now_ms: int) -> None:
        """Fail all waiting joins; the failed generation number is never used again."""
        if self._generation_is_superseded:
            self._replace_superseded_generation(now_ms)
            return
        if self.state is not State.COMMITTING_GENERATION or pending.generation != self._last_generation:
            return
        self._transition(Event.MEMBERS_CHANGED)
        for member in self.members:
            if member.awaiting_join is None:
                continue
            if member.is_new:
                self._fail_join(member, error, "")
                self._remove_member(member.member_id)
            else:
                self._fail_join(member, error, member.member_id)
                self._reschedule_heartbeat(member, now_ms)
        self._deadlines.set(JOIN_DEADLINE, now_ms + self.members.rebalance_timeout_ms)
        self._maybe_complete_join_phase(now_ms)

    def _replace_superseded_generation(self, now_ms: int) -> None:
        self._generation_is_superseded = False
        self._complete_join_phase(now_ms)

    def _complete_rebalance(self, pending: PendingAppend, now_ms: int) -> None:
        """Answer all waiting syncs with the committed assignment."""
        if self.state is not State.COMMITTING_ASSIGNMENT or pending.generation != self.generation:
            return
        self._transition(Event.ASSIGNMENT_COMMITTED)
        for member in self.members:
            member.assignment = pending.assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                self._effects.append(self._sync_reply(member.awaiting_sync, member))
                member.awaiting_sync = None
                self._reschedule_heartbeat(member, now_ms)

    def _assignment_failed(self, pending: PendingAppend, error: ErrorCode, now_ms: int) -> None:
        """Fail all waiting syncs and start another rebalance."""
        if self.state is not State.COMMITTING_ASSIGNMENT or pending.generation != self.generation:
            return
        for member in self.members:
            if member.awaiting_sync is not None:
                self._fail_sync(member, error)
                self._reschedule_heartbeat(member, now_ms)
        self._prepare_rebalance(f"the assignment was not committed: {error.name.upper()}", now_ms)

    def _expire_pending_syncs(self, now_ms: int) -> None:
        """Remove the members that joined but sent no SyncGroup within the rebalance timeout."""
        silent = sorted(self._pending_syncs)
        for member_id in silent:
            self._remove_member(member_id)
        if silent:
            self._maybe_prepare_rebalance_or_complete_join(f"no SyncGroup from {', '.join(silent)}", now_ms)

    def _expire_member(self, member: Member, now_ms: int) -> None:
        """Remove a member whose session expired, or whose first join waited too long."""
        self._fail_join(member, ErrorCode.unknown_member_id, "")
        self._fail_sync(member, ErrorCode.unknown_member_id)
        self._remove_member(member.member_id)
        self._maybe_prepare_rebalance_or_complete_join(
            f"{member.member_id} sent no heartbeat within its session timeout", now_ms
        )
