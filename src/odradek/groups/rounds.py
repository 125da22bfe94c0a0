"""Rounds of a classic group: from "somebody changed" over a committed generation to a committed assignment.

```
begin ─▶ gather joins ─▶ append generation + 1 ─▶ answer joins ─▶ leader syncs: append assignment ─▶ answer syncs
              ▲                  │                     │                          │                       │
              └──────────────────┴─────────────────────┴──── somebody changed ────┴───────────────────────┘
```
"""

from odradek.groups.core import JOIN, PENDING_JOINS, PENDING_JOINS_MS, SYNC, Commit, GroupCore
from odradek.groups.messages import PendingMembersOverdue, RebalanceBegan
from odradek.groups.roster import Member
from odradek.groups.states import ASSIGNING, Event, State
from odradek.model import ErrorCode


class Rounds(GroupCore):
    """What happens between two generations."""

    _delay_left_ms: int | None = None
    """Of an empty group's first round: how much longer it may be delayed. None in every other round."""
    _came_meanwhile = False
    """Whether a member came during the first round's current delay."""

    _is_overtaken = False
    """Whether the generation that is being committed is not to be told, but followed by another one."""

    def _begin_round(self, reason: str, now_ms: int) -> None:
        """Ask everybody to join again. Whoever waits for an assignment hears that there will be none."""
        for member in self.members:
            if member.parked_sync is not None:
                self._answer_sync(member, ErrorCode.rebalance_in_progress)
                self._restart_session(member, now_ms)
        self._pending_syncs.clear()
        self._deadlines.clear(SYNC)
        self._effects.append(RebalanceBegan(generation=self.generation, reason=reason))
        first = self.state is State.EMPTY
        self._move(Event.FIRST_MEMBER if first else Event.MEMBERS_CHANGED)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if first and delay_ms > 0:
            self._delay_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._came_meanwhile = False
            self._deadlines.set(JOIN, now_ms + delay_ms)
        elif first:
            self._complete_round(now_ms)
        else:
            self._deadlines.set(JOIN, now_ms + self.members.rebalance_timeout_ms)
            self._complete_if_all_joined(now_ms)

    def _members_changed(self, reason: str, now_ms: int) -> None:
        """Somebody came, left or changed: a round begins, or the one under way may be complete now."""
        if self.state is State.STABLE or self.state in ASSIGNING or (self.state is State.EMPTY and self.members):
            self._begin_round(reason, now_ms)
        elif self.state is State.COMMITTING_GENERATION:
            # Everybody waited already, so the next record follows as soon as the one on its way is there or lost. Until
            # then more may change: a crowd that joins at once costs two records, not one for each.
            self._move(Event.MEMBERS_CHANGED)
            self._is_overtaken = True
        else:
            self._complete_if_all_joined(now_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        """End the gathering if nobody is missing; but a first round has its delay, as long as anyone is in it.

        Pending members alone hold it up for `PENDING_JOINS_MS`, however many ids are given out meanwhile, and no id
        holds up two rounds.
        """
        if self.state is not State.PREPARING_REBALANCE or self._is_overtaken:
            return
        if self.members.parked_joins < len(self.members) or (self._delay_left_ms is not None and self.members):
            return
        if not any(self._pending_members.values()):
            self._complete_round(now_ms)
        elif PENDING_JOINS not in self._deadlines:
            self._deadlines.set(PENDING_JOINS, now_ms + PENDING_JOINS_MS)

    def _pending_time_is_up(self, now_ms: int) -> None:
        """Go on without the pending members. They may still join with their ids, which starts another round."""
        overdue = tuple(member_id for member_id, is_awaited in self._pending_members.items() if is_awaited)
        self._effects.append(PendingMembersOverdue(member_ids=overdue))
        self._pending_members = dict.fromkeys(self._pending_members, False)
        self._complete_round(now_ms)

    def _gathering_time_is_up(self, now_ms: int) -> None:
        """The delay of a first round, or the rebalance timeout of any other, is over."""
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self._came_meanwhile and self._delay_left_ms:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._came_meanwhile = False
            self._deadlines.set(JOIN, now_ms + delay_ms)
        else:
            self._complete_round(now_ms)

    def _complete_round(self, now_ms: int) -> None:
        """Let go who did not join, and append the next generation.

        Static members keep their place. If only such ones are left and none joined, everything waits on.
        """
        self._deadlines.clear(JOIN)
        self._deadlines.clear(PENDING_JOINS)
        for member in self.members:
            if member.parked_join is None and member.instance_id is None:
                self._drop(member.member_id)
        if self.members and not self.members.elect_joined_leader():
            self._deadlines.set(JOIN, now_ms + self.members.rebalance_timeout_ms)
            return
        self._delay_left_ms = None
        self._last_generation += 1
        if self.members:
            self._move(Event.ALL_JOINED)
            self._say_farewell()
            protocol_name = self.members.vote()
            commit = Commit(kind="generation", generation=self._last_generation, protocol_name=protocol_name)
            self._append(commit, protocol_name, {})
        else:
            self._move(Event.NOBODY_LEFT)
            self.generation, self.protocol_name = self._last_generation, None
            commit = Commit(kind="empty", generation=self.generation, replies=self._farewells)
            self._farewells = []
            self._append(commit, None)

    def _generation_committed(self, commit: Commit, now_ms: int) -> None:
        """Answer every parked join, and expect a sync of each."""
        if self._is_overtaken:
            self._overtake(now_ms)
            return
        if self.state is not State.COMMITTING_GENERATION or commit.generation != self._last_generation:
            return
        self._move(Event.GENERATION_COMMITTED)
        self.generation = commit.generation
        self.protocol_name = commit.protocol_name
        for member in self.members:
            member.assignment = b""
            request = self.members.unpark_join(member)
            if request is not None:
                member.is_new = False
                self._effects.append(self._generation_reply(request.to, member))
                self._pending_syncs.add(member.member_id)
                self._restart_session(member, now_ms)
        self._deadlines.set(SYNC, now_ms + self.members.rebalance_timeout_ms)

    def _generation_failed(self, commit: Commit, error: ErrorCode, now_ms: int) -> None:
        """Tell every parked join to try again; the number that failed is never used again."""
        if self._is_overtaken:
            self._overtake(now_ms)
            return
        if self.state is not State.COMMITTING_GENERATION or commit.generation != self._last_generation:
            return
        self._move(Event.MEMBERS_CHANGED)
        for member in self.members:
            if member.parked_join is None:
                continue
            if member.is_new:
                self._answer_join(member, error, "")
                self._drop(member.member_id)
            else:
                self._answer_join(member, error, member.member_id)
                self._restart_session(member, now_ms)
        self._deadlines.set(JOIN, now_ms + self.members.rebalance_timeout_ms)
        self._complete_if_all_joined(now_ms)

    def _overtake(self, now_ms: int) -> None:
        self._is_overtaken = False
        self._complete_round(now_ms)

    def _assignment_committed(self, commit: Commit, now_ms: int) -> None:
        """Answer every parked sync."""
        if self.state is not State.COMMITTING_ASSIGNMENT or commit.generation != self.generation:
            return
        self._move(Event.ASSIGNMENT_COMMITTED)
        for member in self.members:
            member.assignment = commit.assignments.get(member.member_id, b"")
            if member.parked_sync is not None:
                self._effects.append(self._assignment_reply(member.parked_sync, member))
                member.parked_sync = None
                self._restart_session(member, now_ms)

    def _assignment_failed(self, commit: Commit, error: ErrorCode, now_ms: int) -> None:
        """Tell every parked sync to try again, which means to join again."""
        if self.state is not State.COMMITTING_ASSIGNMENT or commit.generation != self.generation:
            return
        for member in self.members:
            if member.parked_sync is not None:
                self._answer_sync(member, error)
                self._restart_session(member, now_ms)
        self._begin_round(f"the assignment was not committed: {error.name.upper()}", now_ms)

    def _sync_time_is_up(self, now_ms: int) -> None:
        """Let go who joined, but did not ask for an assignment within the rebalance timeout."""
        silent = sorted(self._pending_syncs)
        for member_id in silent:
            self._drop(member_id)
        if silent:
            self._members_changed(f"no sync of {', '.join(silent)}", now_ms)

    def _session_is_over(self, member: Member, now_ms: int) -> None:
        """Let go who was silent for its session timeout, or who waited for its very first answer too long."""
        self._answer_join(member, ErrorCode.unknown_member_id, "")
        self._answer_sync(member, ErrorCode.unknown_member_id)
        self._drop(member.member_id)
        self._members_changed(f"{member.member_id} was silent for its session timeout", now_ms)
