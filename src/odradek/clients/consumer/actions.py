"""Inputs and outputs of the state machines of a member: requests to send, rebalance callbacks to run, responses."""

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
    """Send JoinGroup; the subscription has the owned partitions and their generation."""

    member_id: str
    generation_id: int
    owned: Partitions
    leave_count: int = 0
    """The number of times that the consumer has left groups; the response repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """Compute the assignment as the group's leader, and pass it to `ClassicMembershipManager.assignment_computed`."""

    protocol: str
    subscriptions: Mapping[str, bytes]
    instance_ids: Mapping[str, str | None]
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Send SyncGroup; only the leader's has assignments."""

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
    """Send LeaveGroup without waiting for the response."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """Send ConsumerGroupHeartbeat (KIP-848); a full one has the subscription."""

    number: int
    """Tells the response of this request from those of earlier ones."""
    member_id: str
    epoch: int
    is_full: bool
    owned: Mapping[UUID, frozenset[int]] | None
    """The partitions that the member owns, by topic ids; None for "as before"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshMetadata:
    """Request metadata: the assignment has topics that are unknown."""


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
    """Stop reading `partitions`. `lost`: other members may read them already, and commits will be refused."""

    partitions: Partitions
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """Read exactly `assignment` from now on, after revoking `revoked`."""

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
    """The `leave_count` of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """The response to SyncGroup."""

    error_code: ErrorCode
    assignment: Partitions = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The response to a heartbeat of the consumer protocol: an error, or the member's epoch."""

    request: ConsumerGroupHeartbeat
    error: KafkaError | None = None
    epoch: int = -1
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, frozenset[int]] | None = None
    """The member's partitions by topic ids, None for "as before"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRebalanceConfig:
    """Timeouts and intervals of a member, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
