"""Inputs and outputs of a group member's state machines: requests to send, callbacks to run, responses."""

from collections.abc import Mapping
from uuid import UUID

from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass, field

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Find the group's coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Send JoinGroup with a subscription that has the owned partitions and their generation."""

    member_id: str
    generation_id: int
    owned: Partitions
    leave_count: int = 0
    """The number of times that the consumer has left groups, copied into `JoinGroupResponse`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """Compute the assignment as the group's leader; then call `ClassicMembershipManager.assignment_computed`."""

    protocol: str
    subscriptions: Mapping[str, bytes]
    instance_ids: Mapping[str, str | None]
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Send SyncGroup; only the group's leader sends assignments."""

    member_id: str
    generation_id: int
    protocol: str
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Send Heartbeat."""

    member_id: str
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Leave the group with LeaveGroup or a last ConsumerGroupHeartbeat; the response is ignored."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """Send ConsumerGroupHeartbeat (KIP-848), with the subscription if `is_full`."""

    number: int
    """A sequence number, by which responses to earlier requests are recognized."""
    member_id: str
    epoch: int
    is_full: bool
    owned: Mapping[UUID, frozenset[int]] | None
    """The partitions that the member owns by topic id; None if unchanged since the last heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshMetadata:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRevoked:
    """Stop reading `partitions`. If `lost`, other members may already read them, and commits are refused."""

    partitions: Partitions
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """Revoke `revoked`, then read exactly the partitions of `assignment`, of which `added` are new."""

    assignment: Partitions
    added: Partitions
    revoked: Partitions


RebalanceCallback = PartitionsRevoked | PartitionsAssigned


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """The response to SyncGroup."""

    error_code: ErrorCode
    assignment: Partitions = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The response to ConsumerGroupHeartbeat: an error, or the member's epoch and perhaps a new assignment."""

    request: ConsumerGroupHeartbeat
    error: KafkaError | None = None
    epoch: int = -1
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, frozenset[int]] | None = None
    """The assigned partitions by topic id; None if unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRebalanceConfig:
    """Timeouts and intervals of a member, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
