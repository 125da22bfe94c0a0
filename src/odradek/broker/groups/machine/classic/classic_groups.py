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
    GroupSettings,
)
from odradek.broker.groups.machine.classic.join import join
from odradek.broker.groups.machine.classic.rebalance import (
    expire_join_phase,
    expire_pending_members,
    expire_session,
    expire_sync_phase,
    maybe_complete_join_phase,
    prepare_rebalance,
)
from odradek.broker.groups.machine.classic.states import State
from odradek.broker.groups.machine.classic.sync import heartbeat, leave, sync
from odradek.broker.groups.machine.deadlines import DeadlineKey, Deadlines
from odradek.broker.groups.machine.messages import (
    GroupDescription,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    MemberDescription,
    MemberRequest,
    PendingMemberExpired,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind
from odradek.broker.groups.machine.result_builder import ResultBuilder


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


_HANDLERS: Final[dict[type, Callable[[ClassicGroup, Any, object, Now, ResultBuilder], None]]] = {
    JoinRequest: join,
    SyncRequest: sync,
    HeartbeatRequest: heartbeat,
    LeaveRequest: leave,
}


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
