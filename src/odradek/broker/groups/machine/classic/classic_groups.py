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
from odradek.broker.groups.machine.classic.members import AwaitingJoin, Member
from odradek.broker.groups.machine.classic.rebalance import (
    expire_join_phase,
    expire_pending_members,
    expire_sync_phase,
    maybe_complete_join_phase,
    members_changed,
    prepare_rebalance,
)
from odradek.broker.groups.machine.deadline_queue import DeadlineKey, Deadlines
from odradek.broker.groups.machine.messages import (
    GroupDescription,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    MemberDescription,
    MemberRequest,
    PendingMemberExpired,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, RebalanceOutcome, only_ownership_changed
from odradek.broker.groups.machine.records import GroupMetadataRecord, ResultBuilder
from odradek.model import ErrorCode
from odradek.model.probes import probe
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE


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


def expire_session(group: ClassicGroup, member: Member, now: Now, out: ResultBuilder) -> None:
    """Remove a member whose session expired, or that waited too long for its first JoinGroup response."""
    group.fail_join(member, ErrorCode.unknown_member_id, "", out)
    group.fail_sync(member, ErrorCode.unknown_member_id, out)
    group.remove_member(member.member_id, now.ms, silent_ms=member.session_timeout_ms)
    # A new member waits only while a rebalance is prepared, which has its own cause.
    text = f"{member.member_id} sent no heartbeat within its session timeout"
    cause = Cause(kind=CauseKind.SESSION_EXPIRED, text=text, members=(member.member_id,))
    members_changed(group, cause, now, out)


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


def join(group: ClassicGroup, request: JoinRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Add a new member, rejoin a known one, give out a member id, or reply with an error.

    The checks are Kafka's, in Kafka's order. Differences: a static member that does not join a rebalance stays until
    its session expires; a second join of a waiting member ends the first with REBALANCE_IN_PROGRESS; an unused member
    id delays a rebalance by 3 s, not until the id expires.
    """
    if not _accept_joining_member(group, request.member_id):
        _reject_join_of_full_group(group, request, to, now, out)
    elif not _supports_protocols(group, request):
        _reject(request, to, ErrorCode.inconsistent_group_protocol, out)
    elif not request.member_id:
        _join_new_member(group, request, to, now, out)
    elif request.member_id in group.pending_members and request.instance_id is None:
        _add_member(group, request, to, request.member_id, now, out)
    else:
        error = group.validate_member_id(request.member_id, request.instance_id)
        if error is ErrorCode.none:
            _join_existing_member(group, group.members[request.member_id], request, to, now, out)
        else:
            _reject(request, to, error, out)


def _reject(request: JoinRequest, to: object, error: ErrorCode, out: ResultBuilder) -> None:
    out.reply(to, JoinReply(error=error, member_id=request.member_id))


def _accept_joining_member(group: ClassicGroup, member_id: str) -> bool:
    """Return whether `group.max.size` admits the member; in PREPARING_REBALANCE only waiting joins count as members."""
    if group.state is State.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        has_joined = member is not None and member.awaiting_join is not None
        return has_joined or group.members.num_awaiting_join < group.settings.max_size
    return member is not None or len(group.members) < group.settings.max_size


def _reject_join_of_full_group(
    group: ClassicGroup, request: JoinRequest, to: object, now: Now, out: ResultBuilder
) -> None:
    probe("groups: a join is rejected because the group is full")
    out.reply(to, JoinReply(error=ErrorCode.group_max_size_reached))
    was_member = request.member_id in group.members
    group.remove_member(request.member_id, now.ms)
    if was_member:
        text = f"{request.member_id} was rejected: the group is full"
        members_changed(group, Cause(kind=CauseKind.GROUP_FULL, text=text, members=(request.member_id,)), now, out)
    else:
        maybe_complete_join_phase(group, now, out)


def _supports_protocols(group: ClassicGroup, request: JoinRequest) -> bool:
    """Return whether the group accepts the protocol type and one of the protocols in `request`."""
    if not group.members:
        return bool(request.protocol_type and request.protocols)
    return request.protocol_type == group.protocol_type and group.members.supports_protocols(request.protocols)


def _join_new_member(group: ClassicGroup, request: JoinRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Add a new member, replace a restarted static one, or give a dynamic one its id first (KIP-394)."""
    new_id = request.new_member_id
    if request.instance_id is not None:
        old_id = group.members.static_member_id(request.instance_id)
        if old_id is not None:
            _replace_static_member(group, group.members[old_id], request, to, now, out)
            return
    elif request.requires_member_id:
        group.pending_members[new_id] = True
        group.set_deadline(PENDING_MEMBER, now.ms + request.session_timeout_ms, new_id)
        out.reply(to, JoinReply(error=ErrorCode.member_id_required, member_id=new_id))
        return
    _add_member(group, request, to, new_id, now, out)


def _new_member(request: JoinRequest, to: object, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        awaiting_join=AwaitingJoin(request, to),
    )


def _add_member(
    group: ClassicGroup, request: JoinRequest, to: object, member_id: str, now: Now, out: ResultBuilder
) -> None:
    group.remove_member(member_id, now.ms)
    member = _new_member(request, to, member_id)
    member.is_new = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.members.add(member)
    group.new_member_added = True
    # A member without a response cannot send heartbeats, and lost connections are not seen here: without a deadline,
    # each retry of a client would leave a dead member behind.
    group.set_deadline(SESSION, now.ms + group.settings.new_member_join_timeout_ms, member_id)
    if group.trace is not None:
        group.trace.not_awaited(member_id)
    members_changed(group, _cause(CauseKind.JOINED, f"{member_id} joined", member_id, request), now, out)


def _join_existing_member(
    group: ClassicGroup, member: Member, request: JoinRequest, to: object, now: Now, out: ResultBuilder
) -> None:
    """Rejoin a member. In a join phase, its request waits for the next generation.

    Otherwise start a rebalance if the member's protocols changed or it leads a stable group; else reply with the
    current generation at once.
    """
    is_same, leads = member.matches(request.protocols), member.member_id == group.members.leader
    if group.state is State.PREPARING_REBALANCE:
        group.await_join(member, AwaitingJoin(request, to), now.ms, out)
        maybe_complete_join_phase(group, now, out)
    elif is_same and not (group.state is State.STABLE and leads):
        group.members.update(member, request)
        group.reschedule_heartbeat(member, now.ms)
        out.reply(to, group.join_reply(member, group.generation, group.protocol_name))
    else:
        kind = _rejoin_kind(group, member, request, is_same=is_same)
        group.await_join(member, AwaitingJoin(request, to), now.ms, out)
        name = "the leader" if leads else member.member_id
        members_changed(group, _cause(kind, f"{name} joined again", member.member_id, request), now, out)


def _replace_static_member(
    group: ClassicGroup, old: Member, request: JoinRequest, to: object, now: Now, out: ResultBuilder
) -> None:
    """Replace a restarted static member by one with a new id (KIP-345); requests with the old id are fenced.

    A stable group is rebalanced only if another protocol would be selected now. Responses before JoinGroup 9 do not
    name the new member as leader.
    """
    probe("groups: a restarted static member is replaced")
    leader_before = group.members.leader or ""
    group.fail_join(old, ErrorCode.fenced_instance_id, old.member_id, out)
    group.fail_sync(old, ErrorCode.fenced_instance_id, out)
    member = _new_member(request, to, request.new_member_id)
    group.members.replace(old.member_id, member)
    group.waited_until(member.member_id, now.ms)
    if group.ownership is not None:
        group.ownership.replaced(old.member_id, member.member_id, now.ms)
    group.pending_syncs.pop(old.member_id, None)
    group.cancel_heartbeat(old.member_id)
    if group.state is not State.STABLE or group.members.select_protocol() != group.protocol_name:
        reason = f"static member {request.instance_id} was replaced by {member.member_id}"
        members_changed(group, _cause(CauseKind.FENCED, reason, member.member_id, request), now, out)
        return
    assignments = dict(group.assignments)
    assignments[member.member_id] = assignments.pop(old.member_id, b"")
    value = group.new_record(group.generation, group.protocol_name, assignments, now.wall_ms)
    out.records.append(GroupMetadataRecord(group.group_id, value))
    group.members.remove_awaiting_join(member)
    group.reschedule_heartbeat(member, now.ms)
    skips, leads = request.can_skip_assignment, member.member_id == group.members.leader
    reply = group.join_reply(member, group.generation, group.protocol_name)
    out.reply(
        to,
        JoinReply(
            member_id=reply.member_id,
            generation=reply.generation,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            leader=reply.leader if skips else leader_before,
            members=reply.members if skips else (),
            skip_assignment=leads and skips,
        ),
    )


def _rejoin_kind(group: ClassicGroup, member: Member, request: JoinRequest, *, is_same: bool) -> CauseKind:
    """Return why a known member joins again outside a join phase.

    A leader that joins with the same protocols has found new topics or partitions. A member that only revoked
    partitions is in the second step of a cooperative rebalance (KIP-429).
    """
    if is_same:
        return CauseKind.METADATA_CHANGED
    if group.protocol_type == PROTOCOL_TYPE and only_ownership_changed(member.protocols, request.protocols):
        return CauseKind.PARTITIONS_REVOKED
    return CauseKind.REJOINED


def _cause(kind: CauseKind, text: str, member_id: str, request: JoinRequest) -> Cause:
    with_reason = f"{text} ({request.reason})" if request.reason else text
    return Cause(kind=kind, text=with_reason, members=(member_id,))


_HANDLERS: Final[dict[type, Callable[[ClassicGroup, Any, object, Now, ResultBuilder], None]]] = {
    JoinRequest: join,
    SyncRequest: sync,
    HeartbeatRequest: heartbeat,
    LeaveRequest: leave,
}
