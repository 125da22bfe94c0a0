"""Draws charts with matplotlib. Fonts, sizes and ids are fixed, and there is no date: equal charts give equal bytes.

Figures are made without pyplot, which keeps them all in a global list and chooses a window system.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from odradek.lab.pictures.charts import Bars, Blocks, Chart, Exchange, LanePanel, LaneRow, Lanes, Lines
from odradek.lab.pictures.lanes import Axis, axis_of

_COLORS: Final = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#b0a08f", "#cccccc")
"""The colours of Okabe and Ito, which colour-blind readers can tell apart, without red, which marks gaps."""
_GAP: Final = "#d00000"
_DARK: Final = (_GAP, "#0072b2")
_WIDTH_INCHES: Final = 10.0
_NAME_LENGTH: Final = 34
"""Longer names are shortened in the middle, as the ends of member ids differ."""
_LINE_LENGTH: Final = 125
"""Characters of the notice per line."""
_ROW_INCHES: Final = 0.27
_LANE_INCHES: Final = 0.15
_LEAST_LENGTH: Final = 0.0015
"""The least drawn length, of an axis of length 1, so that a gap of 1 ms is visible."""
_LETTER_LENGTH: Final = 0.011
"""The length of a letter of a lane's label, of an axis of length 1."""
_LEAST_POINTS: Final = 5.0
"""The smallest letters in boxes; a picture becomes wider for them."""
_MOST_TEXTS: Final = 12
"""Limit of the rebalances that are described below a timeline."""
_TICKS_MS: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 10**12)
_STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "odradek",
    "svg.fonttype": "path",  # a browser's own fonts have other widths
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 8.5,
    "text.parse_math": False,  # a member's id may have dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "savefig.dpi": 120,
}


def draw(chart: Chart, file_format: str) -> bytes:
    """Return a chart as the bytes of an `svg` or `png` file."""
    file = io.BytesIO()
    with _style():
        metadata = {"Date": None, "Creator": None} if file_format == "svg" else {"Software": None}
        _figure(chart).savefig(file, format=file_format, metadata=metadata)
    return file.getvalue()


@contextmanager
def drawn(chart: Chart) -> Iterator[Figure]:
    """Yield the figure of a chart after its layout, so that its parts can be measured."""
    with _style():
        figure = _figure(chart)
        figure.draw_without_rendering()
        yield figure


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script that the font lacks
        yield


def _figure(chart: Chart) -> Figure:
    draws: dict[type, Callable[[Any], Figure]] = {
        Blocks: _blocks, Bars: _bars, Lines: _lines, Lanes: _lanes, Exchange: _exchange,
    }  # fmt: skip
    figure = draws[type(chart)](chart)
    figure.suptitle("\n".join(textwrap.wrap(chart.title, 90)), x=0.01, ha="left", fontsize=11, fontweight="bold")
    if chart.notice:
        notice = "\n".join(textwrap.wrap(chart.notice, _LINE_LENGTH))
        figure.supxlabel(notice, x=0.01, ha="left", fontsize=8.5, style="italic")
    return figure


def _new_figure(height_inches: float, chart: Chart, width_inches: float = _WIDTH_INCHES) -> Figure:
    lines = len(textwrap.wrap(chart.title, 90)) + len(textwrap.wrap(chart.notice, _LINE_LENGTH))
    return Figure(figsize=(width_inches, height_inches + 0.2 * lines), layout="constrained")


def _named_rows(axes: Any, names: tuple[str, ...]) -> None:
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _short(name: str) -> str:
    if len(name) <= _NAME_LENGTH:
        return name
    half = (_NAME_LENGTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _blocks(chart: Blocks) -> Figure:
    widest = max([1, *(len(row) for panel in chart.panels for row in panel.rows)])
    longest = max([1, *(len(block.label) for panel in chart.panels for row in panel.rows for block in row)])
    inches = 0.8 * _WIDTH_INCHES / len(chart.panels) / widest
    size = min(8.5, 72 * 0.85 * inches / (0.65 * longest))
    wider = max(1.0, _LEAST_POINTS / size)
    figure = _new_figure(1.1 + _ROW_INCHES * len(chart.names), chart, _WIDTH_INCHES * wider)
    every_axes = figure.subplots(1, len(chart.panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(every_axes, chart.panels, strict=True):
        for row, blocks in enumerate(panel.rows):
            for place, block in enumerate(blocks):
                color = _COLORS[block.kind]
                axes.add_patch(Rectangle((place + 0.03, row - 0.4), 0.94, 0.8, facecolor=color, edgecolor="none"))
                axes.text(place + 0.5, row, block.label, ha="center", va="center", fontsize=size * wider)
        axes.set_xlim(0, max(widest, 8))
        axes.set_title(panel.title, loc="left")
        axes.set_xlabel("number of partitions")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _named_rows(axes, chart.names)
    # matplotlib leaves out labels that begin with an underscore, as a topic's name may.
    handles = [Patch(color=_COLORS[kind], label=f" {_short(label)}") for kind, label in enumerate(chart.legend)]
    figure.legend(handles=handles, loc="outside lower right", ncols=4, frameon=False, fontsize=8)
    return figure


def _bars(chart: Bars) -> Figure:
    figure = _new_figure(1.2 + _ROW_INCHES * len(chart.names), chart)
    every_axes = figure.subplots(1, len(chart.panels), sharey=True, squeeze=False)[0]
    kinds = chart.kinds or (0,) * len(chart.names)
    for axes, panel in zip(every_axes, chart.panels, strict=True):
        values = [value or 0 for value in panel.values]
        axes.barh(range(len(values)), values, height=0.7, color=[_COLORS[kind] for kind in kinds])
        largest = max([*values, 0]) or 1
        for row, value in enumerate(panel.values):
            text = "–" if value is None else f"{value:,}"
            axes.annotate(text, (value or 0, row), (3, 0), textcoords="offset points", va="center", fontsize=8)
        letters = max(len(f"{value:,}") for value in values)
        inches = 0.75 * _WIDTH_INCHES / len(chart.panels)
        share = min(0.75, (letters + 1) * 0.08 / inches)  # of the panel, for the longest figure beside its bar
        axes.set_xlim(0, largest / (1 - share))
        axes.set_title(panel.title, loc="left")
        axes.xaxis.set_major_locator(NullLocator())
        axes.spines["bottom"].set_visible(False)
        _named_rows(axes, chart.names)
    return figure


def _lines(chart: Lines) -> Figure:
    figure = _new_figure(0.6 + 3.0 * len(chart.rows), chart)
    grid = figure.subplots(len(chart.rows), len(chart.rows[0]), squeeze=False)
    handles: list[Any] = []
    for row, panels in zip(grid, chart.rows, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            handles = []
            for number, (name, values) in enumerate(zip(chart.series, panel.values, strict=True)):
                width = max(6.0 - 1.5 * number, 1.0)  # so that a line which covers another leaves its edges visible
                marks = {"marker": "osD^v<>"[number % 7], "markersize": width + 4, "color": _COLORS[number % 7]}
                handles += axes.plot(chart.x, values, label=name, linewidth=width, **marks)
            axes.set_xscale("log")
            axes.set_yscale("symlog", linthresh=1)
            axes.set_ylim(0, 2 * max([1.0, *(max(values) for values in panel.values)]))
            axes.set_xticks(chart.x, [f"{x:,.0f}" for x in chart.x])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.set_title(panel.title, loc="left")
            axes.set_xlabel(chart.x_label)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _lanes(chart: Lanes) -> Figure:
    heights = [0.9 + sum(map(_row_inches, panel.rows)) + 0.15 * _texts(panel) for panel in chart.panels]
    figure = _new_figure(sum(heights) + 0.2, chart)
    every_axes = figure.subplots(len(chart.panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    end_ms = max(panel.timeline.end_ms for panel in chart.panels)
    start_ms = min(panel.timeline.start_ms for panel in chart.panels)
    for axes, panel in zip(every_axes, chart.panels, strict=True):
        whole = Axis(times_ms=(start_ms, end_ms), places=(0.0, 1.0), breaks=())
        _lane_panel(axes, panel, axis_of(panel.timeline) if panel.timeline.is_wall_time else whole)
        if len(chart.panels) > 1:
            axes.set_title(panel.title, loc="left")
    if not chart.panels[0].timeline.is_wall_time:
        every_axes[-1].set_xlabel("seconds since the change", loc="left")
    return figure


def _exchange(chart: Exchange) -> Figure:
    figure = _new_figure(0.6 + _ROW_INCHES * len(chart.arrows), chart)
    axes, end = figure.subplots(), len(chart.names)
    for place, name in enumerate(chart.names):
        axes.axvline(place, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.text(place, -1, name, ha="center", va="bottom", fontsize=6.5, fontweight="bold")
    for place, heading in enumerate(chart.headings):
        axes.text(
            end + 0.8 * place + 0.4 * bool(place), -1, heading, ha="left", va="bottom", fontsize=7.5, fontweight="bold"
        )
    before: tuple[str, ...] = ()
    for row, arrow in enumerate(chart.arrows):
        for place, cell in enumerate(arrow.cells):
            weight = "bold" if before and before[place] != cell else "normal"
            axes.text(end + 0.8 * place + 0.4 * bool(place), row, cell, va="center", fontsize=7.5, fontweight=weight)
        before = arrow.cells
        middle, color = (arrow.source + arrow.target) / 2, _COLORS[5 if arrow.source != arrow.target else 2]
        if arrow.source != arrow.target:
            to, start = (arrow.target, row + 0.2), (arrow.source, row + 0.2)
            style = {"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", to, start, arrowprops=style)
        else:
            axes.plot([middle], [row + 0.2], "o", color=color, markersize=4)
        background = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
        axes.text(middle, row - 0.1, arrow.text, ha="center", va="center", fontsize=6.5, bbox=background)
    axes.set_yticks(range(len(chart.arrows)), [arrow.label for arrow in chart.arrows])
    axes.set_ylim(len(chart.arrows), -1)
    axes.set_xlim(-0.6, end + 0.8 * len(chart.headings) + 0.3)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    return figure


def _row_inches(row: LaneRow) -> float:
    return 0.1 + max(_LANE_INCHES * len(row.lanes), 0.25 if row.steps else 0.15)


def _texts(panel: LanePanel) -> int:
    return min(len(panel.timeline.marks), _MOST_TEXTS + 1) if panel.timeline.is_wall_time else 0


def _lane_panel(axes: Any, panel: LanePanel, axis: Axis) -> None:
    timeline, top = panel.timeline, 0.0
    place = axis.share
    centers = []
    for row in panel.rows:
        height = _row_inches(row)
        _lane_row(axes, panel, row, top, height, axis)
        centers.append(top + height / 2)
        top += height
        axes.axhline(top, color="#dddddd", linewidth=0.6)
    numbered = -1.0
    for number, mark in enumerate(timeline.marks, 1):
        from_place, to_place = place(mark.from_ms), place(mark.to_ms)
        axes.axvspan(from_place, max(to_place, from_place + _LEAST_LENGTH), color="#eeeeee", zorder=0, linewidth=0)
        if len(timeline.marks) > 1 and number <= _MOST_TEXTS and from_place - numbered > 0.02:
            axes.text(from_place, -0.03, str(number), fontsize=7.5, va="bottom", ha="left")
            numbered = from_place
    for from_ms, to_ms in axis.breaks:
        middle = (place(from_ms) + place(to_ms)) / 2
        axes.axvline(middle, color="white", linewidth=4, zorder=5)
        axes.axvline(middle, color="#888888", linewidth=1, linestyle=(0, (1, 2)), zorder=6)
        if place(to_ms) - place(from_ms) > 0.14:  # the text between the numbers of two rebalances
            axes.text(middle, -0.03, f"{_duration(to_ms - from_ms)} quiet", fontsize=7, va="bottom", ha="center")
    axes.set_yticks(centers, [_short(row.name) for row in panel.rows])
    for label, row in zip(axes.get_yticklabels(), panel.rows, strict=True):
        label.set_color(_GAP if row.is_gap else "black")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(top, 0)
    axes.set_xlim(0, 1)
    _time_ticks(axes, panel, axis)


def _lane_row(axes: Any, panel: LanePanel, row: LaneRow, top: float, height: float, axis: Axis) -> None:
    """Draw a box for each span; a span until the timeline's end extends to the end of the axis.

    A label that does not fit into its box is beside it, if the next box of its lane leaves room: to the right, or else
    to the left. Only a lane that has its label elsewhere may have a box without one.
    """

    def ends(from_ms: int, to_ms: int) -> tuple[float, float]:
        left = axis.share(from_ms)
        right = 1.0 if to_ms == panel.timeline.end_ms else axis.share(to_ms)
        return left, max(right, left + _LEAST_LENGTH)

    def box(left: float, right: float, at: float, part: float, kind: int) -> str:
        color = _GAP if row.is_gap else _COLORS[kind % 7]
        axes.add_patch(Rectangle((left, at), right - left, part, facecolor=color, linewidth=0))
        return "white" if color in _DARK else "black"

    def label(text: str, at: float, middle: float, color: str, side: str = "left") -> None:
        offset = 0.003 if side == "left" else -0.003
        axes.text(at + offset, middle, text, fontsize=6.5, va="center_baseline", ha=side, color=color)

    beside = _GAP if row.is_gap else "black"
    for number, lane in enumerate(row.lanes):
        at, part = top + 0.05 + _LANE_INCHES * number, _LANE_INCHES - 0.015
        needed, is_named = _LETTER_LENGTH * len(lane.label), False
        places = [(-1.0, 0.0), *(ends(*span) for span in lane.spans), (1.0, 2.0)]
        for (_, before), (left, right), (after, _) in zip(places, places[1:], places[2:], strict=False):
            color = box(left, right, at, part, lane.kind)
            fits = (right - left > needed, after - right > needed, left - before > needed)
            if fits[0] or fits[1] or not (fits[2] or is_named):
                label(lane.label, left if fits[0] else right, at + part / 2, color if fits[0] else beside)
            elif fits[2]:
                label(lane.label, left, at + part / 2, beside, "right")
            is_named = is_named or any(fits)
    highest = max((count for _, count in row.steps), default=0)
    for (from_ms, count), (to_ms, _) in pairwise(row.steps):
        if count:
            part = (height - 0.06) * count / highest
            left, right = ends(from_ms, to_ms)
            color = box(left, right, top + height - part, part, 0)
            if right - left > _LETTER_LENGTH * len(f"{count:,}"):
                label(f"{count:,}", left, top + height - part / 2, color)


def _time_ticks(axes: Any, panel: LanePanel, axis: Axis) -> None:
    timeline, place = panel.timeline, axis.share
    if not timeline.is_wall_time:
        length_ms = axis.times_ms[-1] - axis.times_ms[0]
        step_ms = next(step for step in _TICKS_MS if length_ms <= 12 * step)
        times = [float(at) for at in range(0, int(axis.times_ms[-1]) + 1, step_ms)]
        axes.set_xticks([place(at) for at in times], [f"{at / 1000:g}" for at in times])
        return
    places: list[float] = []
    labels = []
    for at_ms in [timeline.start_ms, *(mark.from_ms for mark in timeline.marks), timeline.end_ms]:
        # The first label begins at its tick, the others have it in their middle.
        if not places or place(at_ms) - places[-1] > (0.12 if len(places) > 1 else 0.18):
            places.append(place(at_ms))
            labels.append(datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.") + f"{at_ms % 1000:03}")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.set_xticks(places, labels)
    axes.get_xticklabels()[0].set_ha("left")
    day = datetime.fromtimestamp(timeline.start_ms / 1000, UTC).strftime("%Y-%m-%d")
    lines = [f"UTC, from {day} on; {timeline.unowned_partition_ms / 1000:,.3f} partition-seconds without an owner"]
    marks = timeline.marks[:_MOST_TEXTS]
    lines += [
        textwrap.shorten(f"{number}  {mark.text}; {_duration(mark.to_ms - mark.from_ms)}", 130, placeholder=" …")
        for number, mark in enumerate(marks, 1)
    ]
    if len(timeline.marks) > len(marks):
        lines.append(f"and {len(timeline.marks) - len(marks):,} rebalances more")
    axes.set_xlabel("\n".join(lines), loc="left", fontsize=7.5)


def _duration(length_ms: int) -> str:
    """Return a duration as text, in the largest unit that is not longer, with three digits."""
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if length_ms >= unit_ms:
            return f"{length_ms / unit_ms:.3g} {unit}"
    return f"{length_ms} ms"
