"""Inputs and outputs of `MembershipManager`: requests to send, rebalance callbacks to run, responses."""

from collections.abc import Mapping

from odradek.model import ErrorCode, TopicPartition
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
    """Compute the assignment as the group's leader, and pass it to `MembershipManager.assignment_computed`."""

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


Action = FindCoordinator | JoinGroup | PerformAssignment | SyncGroup | Heartbeat | LeaveGroup


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
class GroupRebalanceConfig:
    """Timeouts and intervals of a member, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
