"""SyncGroup, Heartbeat and LeaveGroup of a classic group."""

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.classic.classic_group import SYNC_PHASE, ClassicGroup
from odradek.broker.groups.machine.classic.rebalance import members_changed
from odradek.broker.groups.machine.classic.states import Event, State
from odradek.broker.groups.machine.messages import (
    HeartbeatRequest,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, RebalanceOutcome
from odradek.broker.groups.machine.records import GroupMetadataRecord
from odradek.broker.groups.machine.result_builder import ResultBuilder
from odradek.model import ErrorCode


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
