"""Requests to the group coordinator, its replies, and the events that it reports, independent of the wire format."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.broker.coordinators.machine import Producer
from odradek.broker.groups.machine.consumer.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from odradek.broker.groups.machine.offsets import CommittedOffset
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue

NO_GENERATION = -1
"""The generation of a client that is not a member."""
_MEMBER_BYTES: Final = 1024
"""Memory of a classic member besides its ids and protocols."""
_PROTOCOL_BYTES: Final = 256
"""Memory of a protocol besides its name and metadata."""


def member_size(protocols: tuple[tuple[str, bytes], ...], *ids: str | None) -> int:
    """Return the approximate memory of a classic member, in bytes."""
    names = sum(len(each or "") for each in ids)
    return _MEMBER_BYTES + names + sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


class JoinRequest(Struct, frozen=True, kw_only=True):
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

    @property
    def size_bytes(self) -> int:
        return member_size(self.protocols, self.member_id or self.new_member_id, self.client_id, self.instance_id)


class JoinedMember(Struct, frozen=True, kw_only=True):
    """A member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(Struct, frozen=True, kw_only=True):
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


class SyncRequest(Struct, frozen=True, kw_only=True):
    """A SyncGroup request; only the leader's has `assignments`, by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncReply(Struct, frozen=True, kw_only=True):
    """The response to a `SyncRequest`."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A Heartbeat request; the reply is an `ErrorCode`."""

    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(Struct, frozen=True, kw_only=True):
    """A member in a LeaveGroup request; admin clients may give only the instance id, and an empty `member_id`."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveRequest(Struct, frozen=True, kw_only=True):
    """A LeaveGroup request. The reply is a tuple of `(LeavingMember, ErrorCode)`, in the order of `members`."""

    members: tuple[LeavingMember, ...]


class CommitRequest(Struct, frozen=True, kw_only=True):
    """An OffsetCommit or TxnOffsetCommit request; the reply is an `ErrorCode`."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION
    values: Mapping[TopicPartition, OffsetCommitValue]
    has_member_epoch: bool = True
    """Whether `generation` may be a member epoch of the consumer protocol (OffsetCommit 9 and later)."""
    missing_group_error: ErrorCode = ErrorCode.illegal_generation
    """The error if `generation` is given and the group does not exist."""
    stale_epoch_error: ErrorCode = ErrorCode.stale_member_epoch
    """The error for another epoch than the member's."""
    producer: Producer | None = None
    """The producer in whose transaction the offsets are committed."""


class FetchOffsetsRequest(Struct, frozen=True, kw_only=True):
    """A group's part of an OffsetFetch request; the reply is a `FetchedOffsets`."""

    partitions: tuple[TopicPartition, ...] | None = None
    """The requested partitions; None for all."""
    require_stable: bool = False
    member_id: str | None = None
    """The member that sends the request, None if not given; a consumer group then checks `member_epoch` (KIP-848)."""
    member_epoch: int = -1


class FetchedOffsets(Struct, frozen=True, kw_only=True):
    """The committed offsets of the requested partitions, without `unstable` ones, which open transactions may change.

    `unstable` is empty unless the request has `require_stable`.
    """

    values: Mapping[tuple[str, int], CommittedOffset]
    unstable: frozenset[tuple[str, int]]
    error: ErrorCode = ErrorCode.none


class DescribeRequest(Struct, frozen=True, kw_only=True):
    """A group's part of a DescribeGroups request; the reply is a `GroupDescription` or GROUP_ID_NOT_FOUND."""


class MemberDescription(Struct, frozen=True, kw_only=True):
    """One member of a `GroupDescription`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True, kw_only=True):
    """The state of a group. `protocol_name` and the members' `metadata` are empty unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class DeleteGroupRequest(Struct, frozen=True, kw_only=True):
    """A group's part of a DeleteGroups request; the reply is an `ErrorCode`."""


class DeleteOffsetsRequest(Struct, frozen=True, kw_only=True):
    """An OffsetDelete request; the reply is a `{TopicPartition: ErrorCode}`, or an `ErrorCode` for the whole group."""

    partitions: tuple[TopicPartition, ...]


MemberRequest = JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest
"""A request of a member of the classic protocol, or of an administrator who removes members."""

Request = (
    MemberRequest
    | CommitRequest
    | FetchOffsetsRequest
    | DescribeRequest
    | DeleteGroupRequest
    | DeleteOffsetsRequest
    | ConsumerGroupHeartbeatRequest
    | ConsumerGroupDescribeRequest
)


class RebalanceStarted(Struct, frozen=True, kw_only=True):
    """A rebalance was started."""

    group_id: str
    generation: int
    reason: str


class PendingMembersOverdue(Struct, frozen=True, kw_only=True):
    """A rebalance continues without the pending members that did not join in time."""

    group_id: str
    member_ids: tuple[str, ...]


class PendingMemberExpired(Struct, frozen=True, kw_only=True):
    """A pending member was removed because it did not join within the session timeout."""

    group_id: str
    member_id: str


class OffsetsDeleted(Struct, frozen=True, kw_only=True):
    """Offsets were deleted or expired; the group was deleted with them if `with_group`."""

    group_id: str
    count: int
    with_group: bool
