"""JoinGroup: a new or known member joins the next generation of a classic group.

The checks are Kafka's, in Kafka's order. Differences: a static member that does not join a rebalance stays until its
session expires; a second join of a waiting member ends the first with REBALANCE_IN_PROGRESS; an unused member id delays
a rebalance by 3 s, not until the id expires.
"""

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.classic.classic_group import PENDING_MEMBER, SESSION, ClassicGroup, State
from odradek.broker.groups.machine.classic.members import AwaitingJoin, Member
from odradek.broker.groups.machine.classic.rebalance import maybe_complete_join_phase, members_changed
from odradek.broker.groups.machine.messages import JoinReply, JoinRequest
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, only_ownership_changed
from odradek.broker.groups.machine.records import GroupMetadataRecord, ResultBuilder
from odradek.model import ErrorCode
from odradek.model.probes import probe
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE


def join(group: ClassicGroup, request: JoinRequest, to: object, now: Now, out: ResultBuilder) -> None:
    """Add a new member, rejoin a known one, give out a member id, or reply with an error."""
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
