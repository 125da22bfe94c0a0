"""Requests to a group, its replies and its other effects, as values independent of the wire format.

`to` identifies the receiver of a reply; the group never reads it.
"""

from odradek.model import ErrorCode
from odradek.model.values import dataclass
from odradek.protocol.group_records import GroupMetadataValue

NO_GENERATION = -1
"""The generation of a client that is not a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request."""

    to: object
    member_id: str
    """Empty if the member has none yet."""
    new_member_id: str
    """The id to hand out if the member has none; random ids come from the caller."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """`(name, metadata)`, the preferred one first."""
    requires_member_id: bool
    """Whether a dynamic member without an id must join again with the id it gets (KIP-394, JoinGroup 4 and later)."""
    can_skip_assignment: bool
    """Whether a replaced static leader may be told to skip the assignment (KIP-814, JoinGroup 9 and later)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request; the leader's has the assignments."""

    to: object
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member that leaves; admin clients name static members by instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """A LeaveGroup request, with more than one member since KIP-345."""

    to: object
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The response to a `JoinRequest`."""

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
    """The response to a `SyncRequest`."""

    to: object
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """The response to a `LeaveRequest`, with an error for each member."""

    to: object
    error: ErrorCode = ErrorCode.none
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append this record with the current time; afterwards call `committed` or `failed` with `append_id`."""

    append_id: int
    metadata: GroupMetadataValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """A rebalance was started; the caller logs it."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMembersOverdue:
    """A rebalance continues without pending members that did not join in time; the caller logs it."""

    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired:
    """A pending member was removed because it did not join within the session timeout; the caller logs it."""

    member_id: str


ForTheLog = RebalanceStarted | PendingMembersOverdue | PendingMemberExpired
Effect = JoinReply | SyncReply | LeaveReply | Append | ForTheLog
