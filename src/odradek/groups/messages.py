"""What is said to a group and what it answers: values without a wire format, without a clock, without a socket.

`to` is whatever the caller wants its answer to be addressed with; a group never looks into it.
"""

from odradek.model import ErrorCode
from odradek.model.values import dataclass
from odradek.protocol.group_records import GroupMetadataValue

NO_GENERATION = -1
"""The generation of a member that is in none, and of a commit by a consumer that is in no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member wants to be in the next generation."""

    to: object
    member_id: str
    """Empty for one that has none yet."""
    new_member_id: str
    """The id that it gets if it has none: chance comes from outside."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """`(name, metadata)`, the preferred one first."""
    requires_member_id: bool
    """A dynamic member without an id is sent back with one (KIP-394, JoinGroup 4 and later)."""
    can_skip_assignment: bool
    """A static leader that comes back may be told to keep the assignment (KIP-814, JoinGroup 9 and later)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member wants its assignment; the leader brings everybody's."""

    to: object
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One that leaves; an administrator names a static member by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """Some members leave (more than one since KIP-345)."""

    to: object
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """What a leader is told about a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """Answers a `JoinRequest`."""

    to: object
    error: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """Answers a `SyncRequest`."""

    to: object
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """Answers a `LeaveRequest`, member by member."""

    to: object
    error: ErrorCode = ErrorCode.none
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write this record, with the time of day, then call `committed` or `failed` with the append_id."""

    append_id: int
    metadata: GroupMetadataValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """A round began, and why: for the log."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMembersOverdue:
    """A round goes on without members that were given an id and did not join with it: for the log."""

    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired:
    """A member id that was given out was not used within the session timeout, and is void: for the log."""

    member_id: str


ForTheLog = RebalanceStarted | PendingMembersOverdue | PendingMemberExpired
Effect = JoinReply | SyncReply | LeaveReply | Append | ForTheLog
