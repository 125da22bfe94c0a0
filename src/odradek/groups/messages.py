"""Requests to the group coordinator, its replies, and the events that it reports, independent of the wire format."""

from collections.abc import Mapping

from odradek.coordination import Producer
from odradek.groups.consumer.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.model import ErrorCode, TopicPartition
from odradek.model.values import dataclass
from odradek.protocol.internal_records.group_records import OffsetCommitValue

NO_GENERATION = -1
"""The generation of a client that is not a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request."""

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
    """`(name, metadata)` pairs, the preferred one first."""
    requires_member_id: bool
    """Whether a dynamic member without an id must join again with the id it gets (KIP-394, JoinGroup 4 and later)."""
    can_skip_assignment: bool
    """Whether the client supports `skip_assignment` (KIP-814, JoinGroup 9 and later)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The response to a `JoinRequest`."""

    error: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    """Whether the leader must not assign: it replaced a static leader in a stable group (KIP-814)."""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request; only the leader's has `assignments`, by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """The response to a `SyncRequest`."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A Heartbeat request; the reply is an `ErrorCode`."""

    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member in a LeaveGroup request; admin clients may give only the instance id, and an empty `member_id`."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """A LeaveGroup request. The reply is a tuple of `(LeavingMember, ErrorCode)`, in the order of `members`."""

    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """An OffsetCommit or TxnOffsetCommit request; the reply is an `ErrorCode`."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION
    values: Mapping[TopicPartition, OffsetCommitValue]
    has_member_epoch: bool = True
    """Whether `generation` may be a member epoch of the consumer protocol (OffsetCommit 9 and later)."""
    missing_group_error: ErrorCode = ErrorCode.illegal_generation
    """The error if `generation` is given and the group does not exist."""
    producer: Producer | None = None
    """The producer in whose transaction the offsets are committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsetsRequest:
    """A group's part of an OffsetFetch request; the reply is a `FetchedOffsets`."""

    partitions: tuple[TopicPartition, ...] | None = None
    """The requested partitions; None for all."""
    require_stable: bool = False
    member_id: str | None = None
    """The member that sends the request, None if not given; a consumer group then checks `member_epoch` (KIP-848)."""
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    """The committed offsets of the requested partitions, without `unstable` ones, which open transactions may change.

    `unstable` is empty unless the request has `require_stable`.
    """

    values: Mapping[TopicPartition, OffsetCommitValue]
    unstable: frozenset[TopicPartition]
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeRequest:
    """A group's part of a DescribeGroups request; the reply is a `GroupDescription` or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member of a `GroupDescription`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """The state of a group. `protocol_name` and the members' `metadata` are empty unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    """A group's part of a DeleteGroups request; the reply is an `ErrorCode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsRequest:
    """An OffsetDelete request; the reply is a `{TopicPartition: ErrorCode}`, or an `ErrorCode` for the whole group."""

    partitions: tuple[TopicPartition, ...]


Request = (
    JoinRequest
    | SyncRequest
    | HeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | FetchOffsetsRequest
    | DescribeRequest
    | DeleteGroupRequest
    | DeleteOffsetsRequest
    | ConsumerGroupHeartbeatRequest
    | ConsumerGroupDescribeRequest
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """A rebalance was started."""

    group_id: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMembersOverdue:
    """A rebalance continues without the pending members that did not join in time."""

    group_id: str
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired:
    """A pending member was removed because it did not join within the session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted:
    """Offsets were deleted or expired; the group was deleted with them if `with_group`."""

    group_id: str
    count: int
    with_group: bool
