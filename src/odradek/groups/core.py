"""What every part of a classic group stands on: its state, its members' sessions, what is parked, what is committing.

No rule of the protocol is here but the checks that every request begins with: rounds are in `rounds`, requests in
`classic`.
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
"""The deadline of a round's joins."""
SYNC_DEADLINE = ("sync", "")
"""The deadline of the syncs of those who joined."""
PENDING_MEMBERS_DEADLINE = ("pending joins", "")
"""The deadline of the pending members, when every other member has joined the round."""
PENDING_MEMBERS_TIMEOUT_MS: Final = 3_000
"""A member joins with the id that it was given one round trip later, or never: clients drop an id when their
subscription changes meanwhile. A round takes as long anyway: members hear of it by heartbeat, every 3 s by default."""
_PENDING_BYTES: Final = 1024
"""What an id takes that somebody asked for, with its deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What the broker's configuration says about classic groups."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """How long a member that never had an answer may wait for one: it cannot send heartbeats."""


@dataclass(slots=True, kw_only=True)
class PendingAppend:
    """A record on its way, and what is to happen when it is there."""

    kind: Literal["generation", "assignment", "static", "empty"]
    generation: int
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)
    replies: list[LeaveReply] = field(default_factory=list)
    member: Member | None = None
    """Of a static member that came back: the new one,"""
    replaced: Member | None = None
    """and the one in whose place it is."""
    leader_before: str = ""


class GroupCore:
    """One group's state."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self.has_record = False
        """Whether a record of it was ever appended; one that never was may be forgotten without a trace."""
        self.current_state_timestamp_ms = -1
        """When its last record was written, in ms since 1970; whoever writes it says so."""
        self._settings = settings
        self._last_generation = 0
        """The highest generation that was ever appended; `generation` is the one that is committed."""
        self._pending_members: dict[str, bool] = {}
        """Member ids that were given out and not used (KIP-394), and whether a round still waits for them."""
        self._pending_syncs: set[str] = set()
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        self._pending_appends: dict[int, PendingAppend] = {}
        self._last_append_id = 0
        self._effects: list[Effect] = []
        self._leave_replies: list[LeaveReply] = []
        """Answers to those who left; if nobody is left, they wait for the record that says so."""

    @property
    def size_bytes(self) -> int:
        """About what its members take in memory, those too that only asked for an id."""
        return self.members.size_bytes + _PENDING_BYTES * len(self._pending_members)

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _transition(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state][event]

    # -- checks --------------------------------------------------------------------------------------------------------

    def _validate_member_id(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether the member is known, and is the one that its instance id belongs to (KIP-345)."""
        if instance_id is not None:
            current = self.members.static_member_id(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.fenced_instance_id
            if current is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def _validate_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Its identity, and that it is in the current generation."""
        error = self._validate_member_id(member_id, instance_id)
        if error is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return error

    # -- records -------------------------------------------------------------------------------------------------------

    def _append(
        self, pending: PendingAppend, protocol_name: str | None, assignments: dict[str, bytes] | None = None
    ) -> None:
        """Have a record written: `assignments` in the place of those that members have, by member id."""
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
        """Expect a sign of life within the session timeout. One whose request is parked here is alive anyway."""
        if member.awaiting_join is None and member.awaiting_sync is None:
            self._deadlines.set(("member", member.member_id), now_ms + member.session_timeout_ms)

    def _cancel_heartbeat(self, member: Member) -> None:
        self._deadlines.clear(("member", member.member_id))

    def _remove_member(self, member_id: str) -> None:
        """Forget a member, pending or not; whatever it waits for must be answered before."""
        self.members.remove(member_id)
        self._pending_members.pop(member_id, None)
        self._pending_syncs.discard(member_id)
        self._deadlines.clear(("member", member_id))
        self._deadlines.clear(("pending", member_id))

    # -- answers -------------------------------------------------------------------------------------------------------

    def _fail_join(self, member: Member, error: ErrorCode, member_id: str) -> None:
        """Tell a parked join that it failed; nothing happens if none is parked."""
        request = self.members.remove_awaiting_join(member)
        if request is not None:
            self._effects.append(JoinReply(to=request.to, error=error, member_id=member_id))

    def _fail_sync(self, member: Member, error: ErrorCode) -> None:
        """Tell a parked sync that it failed; nothing happens if none is parked."""
        if member.awaiting_sync is not None:
            self._effects.append(SyncReply(to=member.awaiting_sync, error=error))
            member.awaiting_sync = None

    def _send_leave_replies(self) -> None:
        self._effects += self._leave_replies
        self._leave_replies = []

    def _join_reply(self, to: object, member: Member) -> JoinReply:
        """What a member of the current generation is told; only the leader hears of the others."""
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
