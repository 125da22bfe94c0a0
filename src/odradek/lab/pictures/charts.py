"""Pictures as data: what a picture shows, before anything is drawn. Times are in ms."""

from odradek.lab.timeline import Timeline
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A partition of a member: a box with a label, in the colour of the legend's entry `kind`."""

    label: str
    kind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPanel:
    """A box for each partition of each row's member."""

    title: str
    rows: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Members down, their partitions as boxes beside them; panels side by side have the same rows."""

    title: str
    names: tuple[str, ...]
    panels: tuple[BlockPanel, ...]
    legend: tuple[str, ...]
    notice: str = ""
    """The sentence about what the picture leaves out; empty if it shows everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPanel:
    """A figure of each row; None where there is none."""

    title: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Rows down, their figures as bars; panels side by side have the same rows."""

    title: str
    names: tuple[str, ...]
    panels: tuple[BarPanel, ...]
    kinds: tuple[int, ...] = ()
    """The colour of each row; by default all have the same."""
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePanel:
    """The figures of each series, for each x."""

    title: str
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Figures over a size; both axes grow by factors."""

    title: str
    x_label: str
    x: tuple[float, ...]
    series: tuple[str, ...]
    rows: tuple[tuple[LinePanel, ...], ...]
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A line of a member: one partition, or the number of its partitions."""

    label: str
    kind: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """The lanes of a member; `is_gap` marks the row of the partitions without an owner."""

    name: str
    lanes: tuple[Lane, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    """If there are too many lanes: the number of partitions from a time on."""
    is_gap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePanel:
    """One timeline."""

    title: str
    timeline: Timeline
    rows: tuple[LaneRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Timelines below each other."""

    title: str
    panels: tuple[LanePanel, ...]
    notice: str = ""


Chart = Blocks | Bars | Lines | Lanes
