"""What goes in and out of a group's member, as plain values: requests, work for the application, answers."""

from collections.abc import Mapping

from odradek.model import ErrorCode, TopicPartition
from odradek.model.values import dataclass, field

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Ask any broker who coordinates the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Send JoinGroup, with what the member owns (and since which generation) in its subscription."""

    member_id: str
    generation_id: int
    owned: Partitions
    departures: int = 0
    """How often the consumer has left groups; the answer brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Compute who gets what, for this member leads, and give it to `Membership.assigned`."""

    protocol: str
    subscriptions: Mapping[str, bytes]
    instance_ids: Mapping[str, str | None]
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Send SyncGroup; only the leader's has assignments."""

    member_id: str
    generation_id: int
    protocol: str
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    """Send Heartbeat."""

    member_id: str
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Send LeaveGroup, and do not wait for what it says."""

    member_id: str
    reason: str


Action = FindCoordinator | Join | Assign | Sync | SendHeartbeat | Leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Work for the application: stop reading these. `lost`: others may read them already; commits will be refused."""

    partitions: Partitions
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Work for the application: read exactly `assignment` from now on; `revoked` are to be released first."""

    assignment: Partitions
    added: Partitions
    revoked: Partitions


Work = Release | Take


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """What JoinGroup was answered."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    subscriptions: Mapping[str, bytes] = field(default_factory=dict)
    instance_ids: Mapping[str, str | None] = field(default_factory=dict)
    departures: int = 0
    """That of the `Join`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """What SyncGroup was answered."""

    error_code: ErrorCode
    assignment: Partitions = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTiming:
    """The member's clocks, in ms, by Kafka's names."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
