"""The cost of a change of membership in each generation of consumer groups; `generations` measures it."""

from enum import StrEnum

from odradek.lab.notebook import html
from odradek.lab.timeline import Timeline
from odradek.model.values import dataclass


class Generation(StrEnum):
    """A protocol by which consumers share partitions."""

    ZOOKEEPER = "1 zookeeper-range"
    EAGER = "2 range"
    COOPERATIVE = "2 cooperative-sticky"
    CONSUMER = "3 consumer protocol"


class Change(StrEnum):
    """A change of membership."""

    JOINS = "one joins"
    LEAVES = "one leaves"
    DIES = "one dies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one change, until every partition had one owner and nothing moved any more."""

    generation: Generation
    change: Change
    members: int
    partitions: int
    settled_s: float
    stopped_partition_s: float
    """For how long partitions had no owner, summed over them; of a dead member since its death."""
    members_stopped: int
    """The members that gave up a partition, even if they got it back."""
    group_requests: int
    """The requests about the group that brokers served."""
    tree_reads: int
    tree_writes: int
    claims_refused: int
    """Attempts of a rebalance in generation 1 that failed because another member held a claim of the same partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Changes in each generation, one after another."""

    costs: tuple[Cost, ...]
    timelines: tuple[Timeline, ...]
    """One of each cost."""

    def _repr_html_(self) -> str:
        return html(self)
