"""Charts as data: what a picture shows, without drawing it. Times are in ms."""

from msgspec import Struct

from odradek.lab.timeline import Timeline


class Block(Struct, frozen=True, kw_only=True):
    """A partition of a member: a box with a label, in the colour of the legend's entry `kind`."""

    label: str
    kind: int


class BlockPanel(Struct, frozen=True, kw_only=True):
    """A panel of `Blocks`: a box for each partition of each row's member."""

    title: str
    rows: tuple[tuple[Block, ...], ...]


class Blocks(Struct, frozen=True, kw_only=True):
    """A chart with a row for each member and boxes for its partitions; panels side by side have the same rows."""

    title: str
    names: tuple[str, ...]
    panels: tuple[BlockPanel, ...]
    legend: tuple[str, ...]
    notice: str = ""
    """Sentences about data that the picture leaves out; empty if it shows all."""


class BarPanel(Struct, frozen=True, kw_only=True):
    """A panel of `Bars`: a figure for each row, or None."""

    title: str
    values: tuple[float | None, ...]


class Bars(Struct, frozen=True, kw_only=True):
    """A chart of bars, one for each row; panels side by side have the same rows."""

    title: str
    names: tuple[str, ...]
    panels: tuple[BarPanel, ...]
    kinds: tuple[int, ...] = ()
    """The colour number of each row; by default all have the same."""
    notice: str = ""


class LinePanel(Struct, frozen=True, kw_only=True):
    """A panel of `Lines`: the figures of each series, for each x."""

    title: str
    values: tuple[tuple[float, ...], ...]


class Lines(Struct, frozen=True, kw_only=True):
    """A chart of figures over x; both axes are logarithmic."""

    title: str
    x_label: str
    x: tuple[float, ...]
    series: tuple[str, ...]
    rows: tuple[tuple[LinePanel, ...], ...]
    notice: str = ""


class Lane(Struct, frozen=True, kw_only=True):
    """The spans of one partition of a member, in the colour `kind`."""

    label: str
    kind: int
    spans: tuple[tuple[int, int], ...]


class LaneRow(Struct, frozen=True, kw_only=True):
    """The lanes of a member; with `is_gap`, of partitions without an owner."""

    name: str
    lanes: tuple[Lane, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    """Instead of too many lanes: (time, number of partitions from then on)."""
    is_gap: bool = False


class LanePanel(Struct, frozen=True, kw_only=True):
    """A panel of `Lanes`: one timeline."""

    title: str
    timeline: Timeline
    rows: tuple[LaneRow, ...]


class Lanes(Struct, frozen=True, kw_only=True):
    """A chart of timelines below each other."""

    title: str
    panels: tuple[LanePanel, ...]
    notice: str = ""


class Arrow(Struct, frozen=True, kw_only=True):
    """A row of an `Exchange`: an arrow between two columns with its text; a dot if both are the same."""

    label: str
    """The time, left of the columns."""
    source: int
    target: int
    text: str
    cells: tuple[str, ...]
    """The texts right of the columns."""


class Exchange(Struct, frozen=True, kw_only=True):
    """A sequence chart: time runs down, `names` have a line each, and messages are arrows between them."""

    title: str
    names: tuple[str, ...]
    headings: tuple[str, ...]
    """Of the cells."""
    arrows: tuple[Arrow, ...]
    notice: str = ""


Chart = Blocks | Bars | Lines | Lanes | Exchange
