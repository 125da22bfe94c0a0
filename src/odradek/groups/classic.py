"""The classic group (SPEC 6, generation 2): members join, the leader assigns partitions, all members sync.

A pure state machine: requests, commits and time are method calls, and each call returns a list of effects. The caller
appends the records of `Append` effects and reports when they are committed. Differences from Kafka:

- The record with the next generation, without an assignment, is committed before the first JoinGroup response is sent,
  so no two coordinators announce the same generation. A group loaded from such a record prepares a rebalance.
- The new generation is valid from that commit on; until then requests are answered as in PreparingRebalance.
- A static member that did not join the rebalance stays a member until its session expires.
- If a member sends a request twice, the first one is answered with REBALANCE_IN_PROGRESS.
- A member id that was handed out and not used delays a rebalance by 3 s, not until it expires.

Requests may come in any state; each method begins with the checks that Kafka makes, in Kafka's order.
"""

from collections.abc import Mapping

from odradek.groups.core import JOIN_DEADLINE, PENDING_MEMBERS_DEADLINE, SYNC_DEADLINE, GroupSettings, PendingAppend
from odradek.groups.members import Member
from odradek.groups.messages import (
    Effect,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    PendingMemberExpired,
    SyncReply,
    SyncRequest,
)
from odradek.groups.rebalance import GroupRebalance
from odradek.groups.states import COMPLETING, PREPARING, Event, State
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.group_records import GroupMetadataValue


class ClassicGroup(GroupRebalance):
    """A classic group. Methods that change it return the effects to perform now, in order."""

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when to call `expire`, which may find nothing to do then."""
        return self._deadlines.next_ms

    @property
    def is_unused(self) -> bool:
        """Return whether the object can be dropped: it has no member, no pending member and no record."""
        return self.state is State.EMPTY and not self._pending_members and not self.has_record

    @property
    def is_deletable(self) -> bool:
        """Return whether only its record is left: no member, no pending member, no append in progress."""
        return self.is_empty and not self._pending_members and self.has_record

    @property
    def is_empty(self) -> bool:
        """Return whether it has no member and no append in progress; pending members do not count."""
        return self.state is State.EMPTY and not self._pending_appends

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to with the chosen protocol.

        None if their metadata cannot be read.
        """
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members:
            try:
                topics.update(decode_subscription(member.metadata(self.protocol_name)).topics)
            except MalformedMessageError:
                return None
        return frozenset(topics)

    def assignment_matches(self, partition_counts: Mapping[str, int]) -> bool:
        """Return whether the members' assignments are exactly the partitions of their subscribed topics.

        `partition_counts` has every topic that exists. Return True if metadata or assignments cannot be read, as with
        other protocol types than the consumer's.
        """
        subscribed = self.subscribed_topics()
        if subscribed is None:
            return True
        assigned: set[TopicPartition] = set()
        try:
            for member in self.members:
                assigned.update(decode_assignment(member.assignment).partitions)
        except MalformedMessageError:
            return True
        existing = subscribed & partition_counts.keys()
        return assigned == {
            TopicPartition(topic, number) for topic in existing for number in range(partition_counts[topic])
        }

    @property
    def offset_expiration_condition(self) -> tuple[int, frozenset[str]] | None:
        """Return since when offsets may expire, in ms since 1970, and the topics whose offsets may not.

        None: none may (KIP-211). The offsets of an empty group expire after its last record; -1 means that each
        expires after its own commit.
        """
        if self.protocol_type is None:
            return -1, frozenset()
        if self.state is State.EMPTY:
            return self.current_state_timestamp_ms, frozenset()
        topics = self.subscribed_topics() if self.state is State.STABLE else None
        return None if topics is None else (-1, topics)

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: int) -> list[Effect]:
        """Handle JoinGroup: add a member, rejoin a known one, or hand out a member id."""
        if self.state is State.DEAD:
            self._reject_join(request, ErrorCode.coordinator_not_available)
        elif not self._accept_joining_member(request.member_id):
            self._reject_join_of_full_group(request, now_ms)
        elif not self._supports_protocols(request):
            self._reject_join(request, ErrorCode.inconsistent_group_protocol)
        elif not request.member_id:
            self._join_new_member(request, now_ms)
        elif request.member_id in self._pending_members and request.instance_id is None:
            self._add_member(request, request.member_id, now_ms)
        else:
            error = self._validate_member_id(request.member_id, request.instance_id)
            if error is ErrorCode.none:
                self._join_existing_member(self.members[request.member_id], request, now_ms)
            else:
                self._reject_join(request, error)
        return self._take_effects()

    def sync(self, request: SyncRequest, now_ms: int) -> list[Effect]:
        """Handle SyncGroup; the leader's request carries the assignments of all members."""
        error = self._validate_sync(request)
        if error is not ErrorCode.none:
            self._effects.append(SyncReply(to=request.to, error=error))
            return self._take_effects()
        member = self.members[request.member_id]
        self._pending_syncs.discard(member.member_id)
        if not self._pending_syncs:
            self._deadlines.clear(SYNC_DEADLINE)
        if self.state is State.STABLE:
            self._reschedule_heartbeat(member, now_ms)
            self._effects.append(self._sync_reply(request.to, member))
            return self._take_effects()
        self._fail_sync(member, ErrorCode.rebalance_in_progress)
        member.awaiting_sync = request.to
        self._cancel_heartbeat(member)
        if member.member_id == self.members.leader and self.state is State.COMPLETING_REBALANCE:
            assignments = {member_id: data for member_id, data in request.assignments if member_id in self.members}
            pending = PendingAppend(kind="assignment", generation=self.generation, assignments=assignments)
            self._transition(Event.LEADER_SYNCED)
            self._append(pending, self.protocol_name, assignments)
        return self._take_effects()

    def leave(self, request: LeaveRequest, now_ms: int) -> list[Effect]:
        """Handle LeaveGroup. If the last member leaves, the response waits for the record that ends the generation."""
        if self.state is State.DEAD:
            return [LeaveReply(to=request.to, error=ErrorCode.coordinator_not_available)]
        answers = tuple((leaver, self._remove_leaving_member(leaver)) for leaver in request.members)
        reply = LeaveReply(to=request.to, members=answers)
        left = [leaver.member_id or str(leaver.instance_id) for leaver, error in answers if error is ErrorCode.none]
        self._leave_replies.append(reply)
        if left:
            self._maybe_prepare_rebalance_or_complete_join(f"{', '.join(left)} left", now_ms)
        if self.members or not self._generation_is_superseded:
            self._send_leave_replies()
        return self._take_effects()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Handle Heartbeat."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._validate_member(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        self._reschedule_heartbeat(self.members[member_id], now_ms)
        return ErrorCode.rebalance_in_progress if self.state in PREPARING else ErrorCode.none

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Return whether the member may commit offsets now; a valid commit counts as a heartbeat."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.unknown_member_id
        error = self._validate_member(member_id, instance_id, generation)
        if error is ErrorCode.none and self.state in COMPLETING:
            return ErrorCode.rebalance_in_progress
        if error is ErrorCode.none:
            self._reschedule_heartbeat(self.members[member_id], now_ms)
        return error

    def prepare_rebalance(self, reason: str, now_ms: int) -> list[Effect]:
        """Prepare a rebalance without a member's request, unless one is in progress or the group is empty."""
        if self.state is State.STABLE or self.state in COMPLETING:
            self._prepare_rebalance(reason, now_ms)
        return self._take_effects()

    # -- log, time, load and unload ------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls, group_id: str, metadata: GroupMetadataValue, settings: GroupSettings, now_ms: int
    ) -> "tuple[ClassicGroup, list[Effect]]":
        """Create a group from its last record. Sessions start anew.

        A generation without an assignment is rebalanced.
        """
        group = cls(group_id, settings)
        group.has_record = True
        group.current_state_timestamp_ms = metadata.current_state_timestamp
        group.generation = group._last_generation = metadata.generation
        group.protocol_type = metadata.protocol_type or None
        group.protocol_name = metadata.protocol
        for loaded in metadata.members:
            member = Member(
                member_id=loaded.member_id,
                instance_id=loaded.group_instance_id,
                client_id=loaded.client_id,
                client_host=loaded.client_host,
                session_timeout_ms=loaded.session_timeout,
                # Records of Kafka before 0.10.1 have no rebalance timeout.
                rebalance_timeout_ms=loaded.session_timeout
                if loaded.rebalance_timeout < 0
                else loaded.rebalance_timeout,
                protocols=((metadata.protocol or "", loaded.subscription),),
                assignment=loaded.assignment,
                is_loaded=True,
            )
            group.members.add(member)
            group._reschedule_heartbeat(member, now_ms)
        if group.members:
            group.state = State.STABLE
            if metadata.leader is not None and metadata.leader in group.members:
                group.members.leader = metadata.leader
            if not any(loaded.assignment for loaded in metadata.members):
                group._prepare_rebalance("the last generation has no assignment", now_ms)
            elif len(group.members) > settings.max_size:
                group._prepare_rebalance(f"there are more than group.max.size={settings.max_size} members", now_ms)
        return group, group._take_effects()

    def committed(self, append_id: int, now_ms: int) -> list[Effect]:
        """Continue after the record of an `Append` was committed."""
        pending = self._pending_appends.pop(append_id, None)
        if pending is None:
            return []
        if pending.kind == "generation":
            self._generation_committed(pending, now_ms)
        elif pending.kind == "assignment":
            self._complete_rebalance(pending, now_ms)
        elif pending.kind == "static":
            self._static_member_committed(pending, now_ms)
        self._effects += pending.replies
        return self._take_effects()

    def failed(self, append_id: int, error: ErrorCode, now_ms: int) -> list[Effect]:
        """Continue after the record of an `Append` was not committed: waiting requests get `error` and are retried."""
        pending = self._pending_appends.pop(append_id, None)
        if pending is None:
            return []
        if pending.kind == "generation":
            self._generation_failed(pending, error, now_ms)
        elif pending.kind == "assignment":
            self._assignment_failed(pending, error, now_ms)
        elif pending.kind == "static":
            self._static_member_failed(pending, error, now_ms)
        self._effects += [LeaveReply(to=reply.to, error=error) for reply in pending.replies]
        return self._take_effects()

    def expire(self, now_ms: int) -> list[Effect]:
        """Handle all deadlines that are due: complete join phases, expire members."""
        while (due := self._deadlines.pop_due(now_ms)) is not None:
            kind, member_id = due
            if due == JOIN_DEADLINE:
                self._expire_join(now_ms)
            elif due == SYNC_DEADLINE:
                self._expire_pending_syncs(now_ms)
            elif due == PENDING_MEMBERS_DEADLINE:
                self._expire_pending_members(now_ms)
            elif kind == "pending":
                del self._pending_members[member_id]
                self._effects.append(PendingMemberExpired(member_id=member_id))
                self._maybe_complete_join_phase(now_ms)
            elif (member := self.members.get(member_id)) is not None:
                self._expire_member(member, now_ms)
        return self._take_effects()

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> list[Effect]:
        """Fail all waiting requests and enter `DEAD`: another broker coordinates the group now."""
        for member in self.members:
            self._fail_join(member, error, member.member_id)
            self._fail_sync(member, error)
        for pending in self._pending_appends.values():
            self._leave_replies += pending.replies
        self._effects += [LeaveReply(to=reply.to, error=error) for reply in self._leave_replies]
        self._leave_replies.clear()
        self._pending_appends.clear()
        self._deadlines.clear_all()
        if self.state is not State.DEAD:
            self._transition(Event.UNLOADED)
        return self._take_effects()

    def _reject_join(self, request: JoinRequest, error: ErrorCode) -> None:
        self._effects.append(JoinReply(to=request.to, error=error, member_id=request.member_id))

    def _accept_joining_member(self, member_id: str) -> bool:
        """Check `group.max.size`; while a rebalance is prepared, the members that have joined it count."""
        if self.state is State.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state in PREPARING:
            parked = member is not None and member.awaiting_join is not None
            return parked or self.members.num_awaiting_join < self._settings.max_size
        return member is not None or len(self.members) < self._settings.max_size

    def _reject_join_of_full_group(self, request: JoinRequest, now_ms: int) -> None:
        self._effects.append(JoinReply(to=request.to, error=ErrorCode.group_max_size_reached))
        was_member = request.member_id in self.members
        self._remove_member(request.member_id)
        if was_member:
            self._maybe_prepare_rebalance_or_complete_join(
                f"{request.member_id} was rejected: the group is full", now_ms
            )
        else:
            self._maybe_complete_join_phase(now_ms)

    def _supports_protocols(self, request: JoinRequest) -> bool:
        """Return whether the group, with this member, still has a protocol that all members support."""
        if not self.members:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.members.supports_protocols(request.protocols)

    def _join_new_member(self, request: JoinRequest, now_ms: int) -> None:
        """Add a new member, replace a restarted static one, or first hand out an id to a dynamic one (KIP-394)."""
        new_id = request.new_member_id
        if request.instance_id is not None:
            old_id = self.members.static_member_id(request.instance_id)
            if old_id is not None:
                self._replace_static_member(self.members[old_id], request, now_ms)
                return
        elif request.requires_member_id:
            self._pending_members[new_id] = True
            self._deadlines.set(("pending", new_id), now_ms + request.session_timeout_ms)
            self._effects.append(JoinReply(to=request.to, error=ErrorCode.member_id_required, member_id=new_id))
            return
        self._add_member(request, new_id, now_ms)

    def _new_member(self, request: JoinRequest, member_id: str) -> Member:
        return Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            awaiting_join=request,
        )

    def _add_member(self, request: JoinRequest, member_id: str, now_ms: int) -> None:
        self._remove_member(member_id)
        member = self._new_member(request, member_id)
        member.is_new = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self._new_member_added = True
        # A member without a response has no id for heartbeats, and lost connections are not seen here: without a
        # deadline, a client that retries would leave one dead member behind for each attempt.
        self._deadlines.set(("member", member_id), now_ms + self._settings.new_member_join_timeout_ms)
        self._maybe_prepare_rebalance_or_complete_join(_with_client_reason(f"{member_id} joined", request), now_ms)

    def _join_existing_member(self, member: Member, request: JoinRequest, now_ms: int) -> None:
        """Rejoin a known member; outside a rebalance this starts one only if the member changed or is the leader."""
        same = member.matches(request.protocols)
        if self.state in PREPARING:
            in_generation = self.state is State.COMMITTING_GENERATION and member.awaiting_join is not None and same
            self._await_join(member, request)
            if not in_generation:
                self._maybe_prepare_rebalance_or_complete_join(
                    _with_client_reason(f"{member.member_id} joined again", request), now_ms
                )
        elif same and not (self.state is State.STABLE and member.member_id == self.members.leader):
            self.members.update(member, request)
            self._reschedule_heartbeat(member, now_ms)
            self._effects.append(self._join_reply(request.to, member))
        else:
            self._await_join(member, request)
            who = "the leader" if member.member_id == self.members.leader else member.member_id
            self._maybe_prepare_rebalance_or_complete_join(_with_client_reason(f"{who} joined again", request), now_ms)

    def _await_join(self, member: Member, request: JoinRequest) -> None:
        self.members.update(member, request)
        before = self.members.add_awaiting_join(member, request)
        if before is not None:
            self._reject_join(before, ErrorCode.rebalance_in_progress)
        if not member.is_new:
            self._cancel_heartbeat(member)

    # -- replacing static members (KIP-345) ----------------------------------------------------------------------------

    def _replace_static_member(self, old: Member, request: JoinRequest, now_ms: int) -> None:
        """Replace a restarted static member by one with a new id; requests with the old id are fenced.

        In a stable group no rebalance is needed, unless another protocol would be selected now.
        """
        leader_before = self.members.leader or ""
        self._fail_join(old, ErrorCode.fenced_instance_id, old.member_id)
        self._fail_sync(old, ErrorCode.fenced_instance_id)
        member = self._new_member(request, request.new_member_id)
        member.assignment = old.assignment
        self.members.replace(old.member_id, member)
        self._pending_syncs.discard(old.member_id)
        self._deadlines.clear(("member", old.member_id))
        if self.state is State.STABLE and self.members.select_protocol() == self.protocol_name:
            pending = PendingAppend(
                kind="static", generation=self.generation, member=member, replaced=old, leader_before=leader_before
            )
            self._append(pending, self.protocol_name)
        else:
            reason = f"static member {request.instance_id} was replaced by {member.member_id}"
            self._maybe_prepare_rebalance_or_complete_join(_with_client_reason(reason, request), now_ms)

    def _static_member_committed(self, pending: PendingAppend, now_ms: int) -> None:
        """Answer the join of a replaced static member. Only JoinGroup 9 and later may tell it that it is the leader."""
        member = pending.member
        assert member is not None
        if self.state is not State.STABLE or self.members.get(member.member_id) is not member:
            return
        request = self.members.remove_awaiting_join(member)
        if request is None:
            return
        self._reschedule_heartbeat(member, now_ms)
        reply = self._join_reply(request.to, member)
        leads = member.member_id == self.members.leader
        self._effects.append(
            JoinReply(
                to=reply.to,
                member_id=reply.member_id,
                generation=reply.generation,
                protocol_type=reply.protocol_type,
                protocol_name=reply.protocol_name,
                leader=reply.leader if request.can_skip_assignment else pending.leader_before,
                members=reply.members if request.can_skip_assignment else (),
                skip_assignment=leads and request.can_skip_assignment,
            )
        )

    def _static_member_failed(self, pending: PendingAppend, error: ErrorCode, now_ms: int) -> None:
        """Restore the replaced static member."""
        member, old = pending.member, pending.replaced
        assert member is not None
        assert old is not None
        if self.state is not State.STABLE or self.members.get(member.member_id) is not member:
            return
        self._fail_join(member, error, "")
        self.members.replace(member.member_id, old)
        self._deadlines.clear(("member", member.member_id))
        self._reschedule_heartbeat(old, now_ms)

    # -- syncing and leaving -------------------------------------------------------------------------------------------

    def _validate_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._validate_member(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.none:
            return error
        for theirs, ours in ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol_name)):
            if theirs is not None and ours is not None and theirs != ours:
                return ErrorCode.inconsistent_group_protocol
        return ErrorCode.rebalance_in_progress if self.state in PREPARING else ErrorCode.none

    def _remove_leaving_member(self, leaver: LeavingMember) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:
            # An administrator removes a static member by its instance id.
            static_id = self.members.static_member_id(leaver.instance_id) if leaver.instance_id is not None else None
            if static_id is None:
                return ErrorCode.unknown_member_id
            member_id = static_id
        elif member_id not in self._pending_members:
            error = self._validate_member_id(member_id, leaver.instance_id)
            if error is not ErrorCode.none:
                return error
        member = self.members.get(member_id)
        if member is not None:
            self._fail_join(member, ErrorCode.unknown_member_id, "")
            self._fail_sync(member, ErrorCode.unknown_member_id)
        self._remove_member(member_id)
        return ErrorCode.none


def _with_client_reason(what: str, request: JoinRequest) -> str:
    return f"{what} ({request.reason})" if request.reason else what
