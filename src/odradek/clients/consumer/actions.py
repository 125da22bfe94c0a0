"""Inputs and outputs of a group member's state machines: requests to send, callbacks to run, responses."""

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct, field

from odradek.model import ErrorCode, KafkaError, TopicPartition

Partitions = frozenset[TopicPartition]


class FindCoordinator(Struct, frozen=True, kw_only=True):
    """Find the group's coordinator."""


class JoinGroup(Struct, frozen=True, kw_only=True):
    """Send JoinGroup with a subscription that has the owned partitions and their generation."""

    member_id: str
    generation_id: int
    owned: Partitions
    leave_count: int = 0
    """The number of times that the consumer has left groups, copied into `JoinGroupResponse`."""


class PerformAssignment(Struct, frozen=True, kw_only=True):
    """Compute the assignment as the group's leader; then call `ClassicMembershipManager.assignment_computed`."""

    protocol: str
    subscriptions: Mapping[str, bytes]
    instance_ids: Mapping[str, str | None]
    generation_id: int


class SyncGroup(Struct, frozen=True, kw_only=True):
    """Send SyncGroup; only the group's leader sends assignments."""

    member_id: str
    generation_id: int
    protocol: str
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class Heartbeat(Struct, frozen=True, kw_only=True):
    """Send Heartbeat."""

    member_id: str
    generation_id: int


class LeaveGroup(Struct, frozen=True, kw_only=True):
    """Leave the group with LeaveGroup or a last ConsumerGroupHeartbeat; the response is ignored."""

    member_id: str
    reason: str


class ConsumerGroupHeartbeat(Struct, frozen=True, kw_only=True):
    """Send ConsumerGroupHeartbeat (KIP-848), with the subscription if `is_full`."""

    number: int
    """A sequence number, by which responses to earlier requests are recognized."""
    member_id: str
    epoch: int
    is_full: bool
    owned: Mapping[UUID, frozenset[int]] | None
    """The partitions that the member owns by topic id; None if unchanged since the last heartbeat."""


class RefreshMetadata(Struct, frozen=True, kw_only=True):
    """Request metadata, because the assignment has unknown topic ids."""


Action = (
    FindCoordinator
    | JoinGroup
    | PerformAssignment
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerGroupHeartbeat
    | RefreshMetadata
)


class PartitionsRevoked(Struct, frozen=True, kw_only=True):
    """Stop reading `partitions`. If `lost`, other members may already read them, and commits are refused."""

    partitions: Partitions
    lost: bool


class PartitionsAssigned(Struct, frozen=True, kw_only=True):
    """Revoke `revoked`, then read exactly the partitions of `assignment`, of which `added` are new."""

    assignment: Partitions
    added: Partitions
    revoked: Partitions


RebalanceCallback = PartitionsRevoked | PartitionsAssigned


class JoinGroupResponse(Struct, frozen=True, kw_only=True):
    """The response to JoinGroup."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    subscriptions: Mapping[str, bytes] = field(default_factory=dict)
    instance_ids: Mapping[str, str | None] = field(default_factory=dict)
    leave_count: int = 0
    """The `leave_count` of the `JoinGroup` that this responds to."""


class SyncGroupResponse(Struct, frozen=True, kw_only=True):
    """The response to SyncGroup."""

    error_code: ErrorCode
    assignment: Partitions = frozenset()


class ConsumerGroupHeartbeatResponse(Struct, frozen=True, kw_only=True):
    """The response to ConsumerGroupHeartbeat: an error, or the member's epoch and perhaps a new assignment."""

    request: ConsumerGroupHeartbeat
    error: KafkaError | None = None
    epoch: int = -1
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, frozenset[int]] | None = None
    """The assigned partitions by topic id; None if unchanged."""


class GroupRebalanceConfig(Struct, frozen=True, kw_only=True):
    """Timeouts and intervals of a member, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
