"""The classic groups of one coordinator, and their requests and deadlines."""

from collections.abc import Callable, Mapping

from odradek.coordination import Now
from odradek.groups.classic.classic_group import (
    JOIN_PHASE,
    PENDING_MEMBER,
    PENDING_MEMBERS,
    SESSION,
    SYNC_PHASE,
    ClassicGroup,
    GroupSettings,
)
from odradek.groups.classic.join import join
from odradek.groups.classic.rebalance import (
    expire_join_phase,
    expire_pending_members,
    expire_session,
    expire_sync_phase,
    maybe_complete_join_phase,
    prepare_rebalance,
)
from odradek.groups.classic.states import State
from odradek.groups.classic.sync import heartbeat, leave, sync
from odradek.groups.deadlines import DeadlineKey, Deadlines
from odradek.groups.messages import (
    GroupDescription,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    MemberDescription,
    PendingMemberExpired,
    SyncReply,
    SyncRequest,
)
from odradek.groups.rebalance_trace import Cause, CauseKind
from odradek.groups.result_builder import ResultBuilder
from odradek.model import ErrorCode


class ClassicGroups:
    """The classic groups by id, including groups without members that have only offsets."""

    def __init__(self, settings: Callable[[], GroupSettings], deadlines: Deadlines[DeadlineKey]) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._settings = settings
        self._deadlines = deadlines

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """Return a group; create it if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self.new(group_id)
        return group

    def new(self, group_id: str) -> ClassicGroup:
        """Return a new group without adding it to `groups`."""
        return ClassicGroup(group_id, self._settings(), self._deadlines)

    def forget(self, group_id: str) -> None:
        """Drop a group, if there is one, and its deadlines."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.clear_deadlines()

    def size_bytes(self, group_id: str) -> int:
        """Return the approximate memory of a group's members."""
        group = self.groups.get(group_id)
        return 0 if group is None else group.size_bytes

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

    def expire(self, place: DeadlineKey, now: Now) -> ResultBuilder:
        """Handle a group's deadline that has passed."""
        group_id, kind, member_id = place
        group, out = self.groups[group_id], ResultBuilder(group_id)
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

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, key: str, request: JoinRequest, to: object, now: Now) -> ResultBuilder:
        """Handle a JoinGroup request; create the group if there is none."""
        group, out = self.get_or_create(key), ResultBuilder(key)
        join(group, request, to, now, out)
        return out

    def sync(self, key: str, request: SyncRequest, to: object, now: Now) -> ResultBuilder:
        """Handle a SyncGroup request."""
        group, out = self.groups.get(key), ResultBuilder(key)
        if group is None:
            out.reply(to, SyncReply(error=ErrorCode.unknown_member_id))
        else:
            sync(group, request, to, now, out)
        return out

    def heartbeat(self, key: str, request: HeartbeatRequest, now: Now) -> ErrorCode:
        """Restart the member's session if the request is valid; return the error code."""
        group = self.groups.get(key)
        return ErrorCode.unknown_member_id if group is None else heartbeat(group, request, now)

    def leave(self, key: str, request: LeaveRequest, to: object, now: Now) -> ResultBuilder:
        """Handle a LeaveGroup request."""
        group, out = self.groups.get(key), ResultBuilder(key)
        if group is None:
            out.reply(to, tuple((each, ErrorCode.unknown_member_id) for each in request.members))
        else:
            leave(group, request, to, now, out)
        return out

    def describe(self, key: str) -> GroupDescription | None:
        """Return the description of a group, if it exists."""
        group = self.groups.get(key)
        if group is None:
            return None
        protocol_name = group.protocol_name if group.state is State.STABLE else None
        members = tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=b"" if protocol_name is None else member.metadata(protocol_name),
                assignment=group.assignment(member.member_id),
            )
            for member in group.members
        )
        return GroupDescription(
            group_id=key,
            state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_name=protocol_name or "",
            members=members,
        )
