"""The values of a play: steps, messages, and costs."""

from enum import StrEnum

from msgspec import Struct

from odradek.lab.costs import Generation
from odradek.lab.timeline import Timeline


class Kind(StrEnum):
    """The kind of a step."""

    CLICK = "click"
    MESSAGE = "message"
    GROUP = "group"
    """The coordinator's group changes its state."""
    LEADERS = "leaders"
    OWNERS = "owners"
    ROUTINE = "routine"
    """Messages that change nothing, such as heartbeats, folded into one step."""


class Message(Struct, frozen=True, kw_only=True):
    """A request, or the response to one if `is_response`; between a member and a broker, or the tree."""

    api: str
    source: str
    target: str
    fields: tuple[tuple[str, str], ...] = ()
    error: str = ""
    is_response: bool = False

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.fields)
        kind = " response" if self.is_response else ""
        return (
            f"{self.api}{kind} {self.source} → {self.target}"
            + f" ({shown})" * bool(shown)
            + (f": {self.error}" if self.error else "")
        )


class Step(Struct, frozen=True, kw_only=True):
    """One step, and the partitions' owners after it. A partition without an owner or a leader is in `unread`."""

    at_ms: int
    kind: Kind
    text: str
    message: Message | None
    owners: dict[int, str]
    unread: tuple[int, ...]


class Totals(Struct, frozen=True, kw_only=True):
    """The costs of a play."""

    unread_partition_ms: int
    """The time in which partitions were not read, summed over partitions; it begins with a partition's first reader."""
    interrupted_ms: int
    """The time in which at least one partition was not read."""
    requests: int
    """The requests of members about the group."""
    tree_reads: int
    tree_writes: int


class Finding(Struct, frozen=True, kw_only=True):
    """A promise that was checked at the end of a play, and whether it holds."""

    text: str
    holds: bool


class Play(Struct, frozen=True, kw_only=True):
    """A script that was played with one generation."""

    generation: Generation
    script: str
    partitions: int
    seed: int
    steps: tuple[Step, ...]
    totals: Totals
    timeline: Timeline
    """The readers of partitions."""
    findings: tuple[Finding, ...] = ()
    """After `failover-1` to `failover-5`."""
