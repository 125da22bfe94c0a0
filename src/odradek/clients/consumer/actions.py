"""What goes in and out of a group's member, as plain values: requests, work for the application, answers."""

from collections.abc import Mapping

from odradek.model import ErrorCode, TopicPartition
from odradek.model.values import dataclass, field

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Ask any broker who coordinates the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Send JoinGroup, with what the member owns (and since which generation) in its subscription."""

    member_id: str
    generation_id: int
    owned: Partitions
    leave_count: int = 0
    """How often the consumer has left groups; the answer brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformAssignment:
    """Compute who gets what, for this member leads, and give it to `MembershipManager.assigned`."""

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
    """Send LeaveGroup, and do not wait for what it says."""

    member_id: str
    reason: str


Action = FindCoordinator | JoinGroup | PerformAssignment | SyncGroup | Heartbeat | LeaveGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRevoked:
    """Work for the application: stop reading these. `lost`: others may read them already; commits will be refused."""

    partitions: Partitions
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """Work for the application: read exactly `assignment` from now on; `revoked` are to be released first."""

    assignment: Partitions
    added: Partitions
    revoked: Partitions


RebalanceCallback = PartitionsRevoked | PartitionsAssigned


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    """What JoinGroup was answered."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    subscriptions: Mapping[str, bytes] = field(default_factory=dict)
    instance_ids: Mapping[str, str | None] = field(default_factory=dict)
    leave_count: int = 0
    """That of the `Join`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """What SyncGroup was answered."""

    error_code: ErrorCode
    assignment: Partitions = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRebalanceConfig:
    """The member's clocks, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
