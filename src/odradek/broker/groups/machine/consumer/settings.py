"""The broker's configuration of groups of the consumer protocol."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from odradek.assignors import GroupSubscription
from odradek.model import TopicPartition


class ServerAssignor(Protocol):
    """The interface of an assignor in the coordinator."""

    def assign(self, group: GroupSubscription) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member; `owned` of a member in `group` is its last target."""


class ConsumerGroupSettings(Struct, frozen=True, kw_only=True):
    """The broker's `group.consumer.*` settings of one group."""

    assignors: Mapping[str, ServerAssignor] = field(default_factory=dict)
    """Assignors by name; the first is the default."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    """The longest pause between two computations of a group's targets."""
    traces_rebalances: bool = False
    """Whether each rebalance is reported with its cause and durations (`group_trace`)."""
    migration_policy: str = "bidirectional"
    """Which conversions of groups with members are allowed: disabled, upgrade, downgrade, bidirectional."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are matched with all topics again."""
