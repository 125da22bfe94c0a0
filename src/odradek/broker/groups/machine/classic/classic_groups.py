"""The requests and deadlines of the classic groups of one coordinator."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.classic.classic_group import (
    JOIN_PHASE,
    PENDING_MEMBER,
    PENDING_MEMBERS,
    SESSION,
    SYNC_PHASE,
    ClassicGroup,
    Event,
    GroupSettings,
    State,
)
from odradek.broker.groups.machine.classic.join import join
from odradek.broker.groups.machine.classic.rebalance import (
    expire_join_phase,
    expire_pending_members,
    expire_session,
    expire_sync_phase,
    maybe_complete_join_phase,
    members_changed,
    prepare_rebalance,
)
from odradek.broker.groups.machine.deadlines import DeadlineKey, Deadlines
from odradek.broker.groups.machine.messages import (
    GroupDescription,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    MemberDescription,
    MemberRequest,
    PendingMemberExpired,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, RebalanceOutcome
from odradek.broker.groups.machine.records import GroupMetadataRecord, ResultBuilder
from odradek.model import ErrorCode


class ClassicGroups:
    """The requests and deadlines of classic groups, also of groups without members that have only offsets."""

    def __init__(self, settings: Callable[[], GroupSettings], deadlines: Deadlines[DeadlineKey]) -> None:
        self.settings = settings
        self._deadlines = deadlines

    def new(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self.settings(), self._deadlines)

    def rebuild(self, group: ClassicGroup, partition_counts: Mapping[str, int], now: Now) -> ResultBuilder:
        """Rebuild a group from its record; rebalance it if it has no assignment, is too large, or topics changed."""
        group.rebuild(now.ms)
        out, limit = ResultBuilder(group.group_id), group.settings.max_size
        if group.state is State.STABLE:
            if not group.has_assignment:
                cause = Cause(kind=CauseKind.COORDINATOR_MOVED, text="the last generation has no assignment")
                prepare_rebalance(group, cause, now, out)
            elif len(group.members) > limit:
                text = f"there are more than group.max.size={limit} members"
                prepare_rebalance(group, Cause(kind=CauseKind.GROUP_FULL, text=text), now, out)
            elif not group.assignment_matches(partition_counts):
                reason = "topics or partitions changed while the group had no coordinator"
                prepare_rebalance(group, Cause(kind=CauseKind.METADATA_CHANGED, text=reason), now, out)
        return out

    def expire(self, group: ClassicGroup, place: DeadlineKey, now: Now) -> ResultBuilder:
        group_id, kind, member_id = place
        out = ResultBuilder(group_id)
        if kind == JOIN_PHASE:
            expire_join_phase(group, now, out)
        elif kind == SYNC_PHASE:
            expire_sync_phase(group, now, out)
        elif kind == PENDING_MEMBERS:
            expire_pending_members(group, now, out)
        elif kind == PENDING_MEMBER:
            del group.pending_members[member_id]
            out.events.append(PendingMemberExpired(group_id=group_id, member_id=member_id))
            maybe_complete_join_phase(group, now, out)
        elif kind == SESSION and (member := group.members.get(member_id)) is not None:
            expire_session(group, member, now, out)
        return out

    def handle(self, group: ClassicGroup, request: MemberRequest, to: object, now: Now) -> ResultBuilder:
        """Handle a request of a member; a new group stands for one that does not exist."""
        out = ResultBuilder(group.group_id)
        _HANDLERS[type(request)](group, request, to, now, out)
        return out


def describe(group: ClassicGroup) -> GroupDescription:
    protocol_name = group.protocol_name if group.state is State.STABLE else None
    is_joining = group.state is State.PREPARING_REBALANCE
    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Unlike Kafka's, the description of a join phase has the metadata of members that have joined.
            metadata=member.protocols[0][1] if is_joining and member.awaiting_join else member.metadata(protocol_name),
            assignment=group.assignment(member.member_id),
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=members,
    )


def sync(group: ClassicGroup, request: SyncRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Reply with the member's assignment as soon as the leader has sent it, or with an error."""
    error = _validate_sync(group, request)
    if error is not ErrorCode.none:
        out.reply(to, SyncReply(error=error))
        return
    member = group.members[request.member_id]
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        group.clear_deadline(SYNC_PHASE)
    if group.state is State.STABLE:
        group.reschedule_heartbeat(member, now.ms)
        assignment = group.assignment(member.member_id)
        out.reply(to, group.sync_reply(assignment))
        group.trace_assignment(member, assignment, now.ms)
        _maybe_complete(group, now, out)
        return
    group.fail_sync(member, ErrorCode.rebalance_in_progress, out)
    member.awaiting_sync = to
    group.cancel_heartbeat(member.member_id)
    if member.member_id == group.members.leader:
        _assign(group, {key: data for key, data in request.assignments if key in group.members}, now, out)


def _assign(group: ClassicGroup, assignments: dict[str, bytes], now: Now, out: ResultBuilder) -> None:
    """Record the assignment and answer all members that wait for it."""
    group.transition(Event.LEADER_SYNCED)
    value = group.new_record(group.generation, group.protocol_name, assignments, now.wall_ms)
    out.records.append(GroupMetadataRecord(group.group_id, value))
    if group.trace is not None:
        group.trace.assigned(now.ms)
    for member in group.members:
        if member.awaiting_sync is not None:
            assignment = assignments.get(member.member_id, b"")
            out.reply(member.awaiting_sync, group.sync_reply(assignment))
            member.awaiting_sync = None
            group.reschedule_heartbeat(member, now.ms)
            group.trace_assignment(member, assignment, now.ms)
    _maybe_complete(group, now, out)


def _maybe_complete(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Report the rebalance as completed if every member that joined has its assignment."""
    if not group.pending_syncs:
        group.end_trace(RebalanceOutcome.STABLE, now.ms, out)


def _validate_sync(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    error = group.validate_member(request.member_id, request.instance_id, request.generation)
    if error is not ErrorCode.none:
        return error
    for theirs, ours in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
        if theirs is not None and ours is not None and theirs != ours:
            return ErrorCode.inconsistent_group_protocol
    is_preparing = group.state is State.PREPARING_REBALANCE
    return ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Restart a valid member's session; reply REBALANCE_IN_PROGRESS if the member must join again."""
    error = group.validate_member(request.member_id, request.instance_id, request.generation)
    if error is ErrorCode.none:
        group.reschedule_heartbeat(group.members[request.member_id], now.ms)
        if group.state is State.PREPARING_REBALANCE:
            error = ErrorCode.rebalance_in_progress
    out.reply(to, error)


def leave(group: ClassicGroup, request: LeaveRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Remove members, and reply with an error code for each."""
    answers = tuple((each, _remove_leaving_member(group, each, now, out)) for each in request.members)
    left = [each for each, error in answers if error is ErrorCode.none]
    if left:
        members_changed(group, _leave_cause(left), now, out)
    out.reply(to, answers)


def _leave_cause(left: list[LeavingMember]) -> Cause:
    names = tuple(each.member_id or str(each.instance_id) for each in left)
    reasons = sorted({each.reason for each in left if each.reason})
    text = f"{', '.join(names)} left" + (f" ({', '.join(reasons)})" if reasons else "")
    return Cause(kind=CauseKind.LEFT, text=text, members=names)


def _remove_leaving_member(group: ClassicGroup, leaver: LeavingMember, now: Now, out: ResultBuilder) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id:
        # An administrator removes a static member by its instance id.
        static_id = group.members.static_member_id(leaver.instance_id) if leaver.instance_id is not None else None
        if static_id is None:
            return ErrorCode.unknown_member_id
        member_id = static_id
    elif member_id not in group.pending_members:
        error = group.validate_member_id(member_id, leaver.instance_id)
        if error is not ErrorCode.none:
            return error
    member = group.members.get(member_id)
    if member is not None:
        group.fail_join(member, ErrorCode.unknown_member_id, "", out)
        group.fail_sync(member, ErrorCode.unknown_member_id, out)
    group.remove_member(member_id, now.ms)
    return ErrorCode.none


_HANDLERS: Final[dict[type, Callable[[ClassicGroup, Any, object, Now, ResultBuilder], None]]] = {
    JoinRequest: join,
    SyncRequest: sync,
    HeartbeatRequest: heartbeat,
    LeaveRequest: leave,
}
