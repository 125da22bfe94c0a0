"""The broker's configuration of groups of the consumer protocol."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from odradek.assignors import GroupSubscription
from odradek.model import TopicPartition
from odradek.model.values import dataclass, field


class ServerAssignor(Protocol):
    """The part of an assignor that a coordinator uses."""

    def assign(self, group: GroupSubscription) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member; `owned` of its members is the last target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """`group.consumer.*`."""

    assignors: Mapping[str, ServerAssignor] = field(default_factory=dict)
    """By name; the first is for groups whose members ask for none."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    """The longest time between two computations of a group's targets."""
    traces_rebalances: bool = False
    """Whether each rebalance is reported with its cause and its cost (`group_trace`)."""
    migration_policy: str = "bidirectional"
    """Which groups with members change their protocol: disabled, upgrade, downgrade, bidirectional."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are resolved although no topic is new."""
