"""The state that all parts of a classic group share: members' sessions, waiting requests, appends in progress.

The only protocol rules here are the checks that every request begins with; `rebalance` has the rebalance, `classic`
the requests.
"""

from typing import Final, Literal

from odradek.groups.deadlines import Deadlines
from odradek.groups.members import GroupMembers, Member
from odradek.groups.messages import Append, Effect, JoinedMember, JoinReply, LeaveReply, SyncReply
from odradek.groups.states import TRANSITIONS, Event, State
from odradek.model import ErrorCode
from odradek.model.values import dataclass, field
from odradek.protocol.group_records import GroupMetadataValue

JOIN_DEADLINE = ("join", "")
"""Key of the deadline of the join phase."""
SYNC_DEADLINE = ("sync", "")
"""Key of the deadline of the members' SyncGroup requests."""
PENDING_MEMBERS_DEADLINE = ("pending joins", "")
"""Key of the deadline of pending members, set when every other member has joined."""
PENDING_MEMBERS_TIMEOUT_MS: Final = 3_000
"""How long a rebalance waits for pending members. A client joins with its new id after one round trip or never; other
members learn of the rebalance by heartbeat, every 3 s by default, so it takes that long anyway."""
_PENDING_BYTES: Final = 1024
"""Memory taken by a pending member and its deadline, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's configuration of classic groups."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """How long a member without any response so far may wait for one: it cannot send heartbeats."""


@dataclass(slots=True, kw_only=True)
class PendingAppend:
    """An append in progress, and what its commit or failure changes."""

    kind: Literal["generation", "assignment", "static", "empty"]
    generation: int
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)
    replies: list[LeaveReply] = field(default_factory=list)
    member: Member | None = None
    """The new member, if a static member is replaced."""
    replaced: Member | None = None
    """The member that it replaces."""
    leader_before: str = ""


class GroupCore:
    """The state of one group."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self.has_record = False
        """Whether a record of the group was ever appended."""
        self.current_state_timestamp_ms = -1
        """When the group's last record was written, in ms since 1970; the caller that writes it sets this."""
        self._settings = settings
        self._last_generation = 0
        """The highest generation that was ever appended; `generation` is the committed one."""
        self._pending_members: dict[str, bool] = {}
        """Member ids that were handed out and not used yet (KIP-394) → whether the current rebalance waits for them."""
        self._pending_syncs: set[str] = set()
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        self._pending_appends: dict[int, PendingAppend] = {}
        self._last_append_id = 0
        self._effects: list[Effect] = []
        self._leave_replies: list[LeaveReply] = []
        """LeaveGroup responses; when the last member leaves, they wait for the record of the empty group."""

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes of memory members and pending members take."""
        return self.members.size_bytes + _PENDING_BYTES * len(self._pending_members)

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _transition(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state][event]

    # -- checks --------------------------------------------------------------------------------------------------------

    def _validate_member_id(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return an error if the member is unknown, or fenced by another member with its instance id (KIP-345)."""
        if instance_id is not None:
            current = self.members.static_member_id(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.fenced_instance_id
            if current is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def _validate_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return an error if the member is unknown, fenced, or in another generation."""
        error = self._validate_member_id(member_id, instance_id)
        if error is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return error

    # -- records -------------------------------------------------------------------------------------------------------

    def _append(
        self, pending: PendingAppend, protocol_name: str | None, assignments: dict[str, bytes] | None = None
    ) -> None:
        """Append a group record; `assignments`, by member id, replace the members' current ones."""
        self._last_append_id += 1
        self._pending_appends[self._last_append_id] = pending
        self.has_record = True
        metadata = GroupMetadataValue(
            generation=pending.generation,
            protocol_type=self.protocol_type or "",
            protocol=protocol_name,
            leader=self.members.leader,
            members=self.members.metadata(protocol_name, assignments),
        )
        self._effects.append(Append(append_id=self._last_append_id, metadata=metadata))

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _reschedule_heartbeat(self, member: Member, now_ms: int) -> None:
        """Restart the session timeout of a member, unless a request of it is waiting here."""
        if member.awaiting_join is None and member.awaiting_sync is None:
            self._deadlines.set(("member", member.member_id), now_ms + member.session_timeout_ms)

    def _cancel_heartbeat(self, member: Member) -> None:
        self._deadlines.clear(("member", member.member_id))

    def _remove_member(self, member_id: str) -> None:
        """Remove a member or pending member; its waiting requests must have been answered."""
        self.members.remove(member_id)
        self._pending_members.pop(member_id, None)
        self._pending_syncs.discard(member_id)
        self._deadlines.clear(("member", member_id))
        self._deadlines.clear(("pending", member_id))

    # -- answers -------------------------------------------------------------------------------------------------------

    def _fail_join(self, member: Member, error: ErrorCode, member_id: str) -> None:
        """Answer the member's waiting join, if any, with an error."""
        request = self.members.remove_awaiting_join(member)
        if request is not None:
            self._effects.append(JoinReply(to=request.to, error=error, member_id=member_id))

    def _fail_sync(self, member: Member, error: ErrorCode) -> None:
        """Answer the member's waiting sync, if any, with an error."""
        if member.awaiting_sync is not None:
            self._effects.append(SyncReply(to=member.awaiting_sync, error=error))
            member.awaiting_sync = None

    def _send_leave_replies(self) -> None:
        self._effects += self._leave_replies
        self._leave_replies = []

    def _join_reply(self, to: object, member: Member) -> JoinReply:
        """Build the JoinGroup response of a member of the current generation; only the leader's has the members."""
        leads = member.member_id == self.members.leader
        return JoinReply(
            to=to,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            members=self._current_member_metadata() if leads else (),
        )

    def _current_member_metadata(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members
        )

    def _sync_reply(self, to: object, member: Member) -> SyncReply:
        return SyncReply(
            to=to,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
