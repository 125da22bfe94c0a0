"""The cost of a change of membership in each generation of consumer groups; `generations` measures it."""

from enum import StrEnum

from msgspec import Struct

from odradek.lab.notebook import html
from odradek.lab.timeline import Timeline


class Generation(StrEnum):
    """A generation of consumer groups, with the strategy or protocol that is measured."""

    ZOOKEEPER = "1 zookeeper-range"
    EAGER = "2 range"
    COOPERATIVE = "2 cooperative-sticky"
    CONSUMER = "3 consumer protocol"

    @property
    def key(self) -> str:
        """The name on the command line and in addresses."""
        return self.value.split()[1]


class Change(StrEnum):
    """A change of membership."""

    JOINS = "one joins"
    LEAVES = "one leaves"
    DIES = "one dies"


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one change, until every partition has one owner and no partition moves."""

    generation: Generation
    change: Change
    members: int
    partitions: int
    settled_s: float
    stopped_partition_s: float
    """The time without an owner, summed over partitions; a dead member's partitions count from its death."""
    members_stopped: int
    """The number of members that gave up a partition, even if they got it back."""
    group_requests: int
    """The requests about the group that the broker served, also in the 3 s without a change after it settled."""
    tree_reads: int
    tree_writes: int
    claims_refused: int
    """Attempts to claim partitions in generation 1 that failed because another member held one of them."""


class Costs(Struct, frozen=True, kw_only=True):
    """The costs of changes in several generations."""

    costs: tuple[Cost, ...]
    timelines: tuple[Timeline, ...]
    """The timeline of each cost."""

    def _repr_html_(self) -> str:
        return html(self)
