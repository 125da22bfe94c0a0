"""Draws the heat maps of a sweep: a PNG and an SVG for each measure, with a panel for each strategy."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isnan, nan
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from msgspec import Struct

from odradek.lab.sweep.settings import Sweep
from odradek.lab.sweep.summary import MEASURES, means

Row = Mapping[str, Any]

FORMATS: Final = ("png", "svg")
_MOST_VALUES: Final = 40
"""Limit of the values on an axis; the picture says which are left out."""
_MOST_PANELS: Final = 12
_MOST_NUMBERED: Final = 14
"""With more values on an axis, cells have no numbers."""
_PANELS_IN_A_ROW: Final = 4
_CELL_INCHES: Final = 0.5
_COLOURS: Final = {"local": "YlGn"}
"""Colour maps of measures for which more is better."""


class _Layout(Struct, frozen=True, kw_only=True):
    """The values along both axes of a picture, and the strategies of its panels."""

    x: str
    y: str
    columns: tuple[Any, ...]
    lines: tuple[Any, ...]
    panels: tuple[str | None, ...]
    """Strategies; None alone if the strategy is an axis."""
    note: str
    """The text about values that are left out."""


def axes_of(sweep: Sweep) -> tuple[str, str]:
    """Return the axes x and y of the pictures: those of the sweep's file, else the two with the most values.

    The strategy comes after all axes with several values, except `seed`, which is last.
    """
    by_length = sorted(sweep.axes, key=lambda axis: (axis == "seed", -len(sweep.axes[axis])))
    several = [axis for axis in by_length if len(sweep.axes[axis]) > 1 and axis != "seed"]
    free = [axis for axis in (*several, "strategy", *by_length) if axis not in (sweep.x, sweep.y)]
    x = sweep.x or free[0]
    return x, sweep.y or next(axis for axis in free if axis != x)


def draw(sweep: Sweep, table: str) -> dict[str, bytes]:
    """Return the pictures by file name, such as `moved.svg`, of all measures that have values."""
    x, y = axes_of(sweep)
    rows = means(table, sweep, list(dict.fromkeys((x, y, "strategy"))))
    pictures: dict[str, bytes] = {}
    for measure in MEASURES:
        if any(row[measure] is not None for row in rows):
            figure = heat_map(sweep, rows, measure)
            pictures |= {f"{measure}.{form}": _bytes(figure, form) for form in FORMATS}
    return pictures


def heat_map(sweep: Sweep, rows: Sequence[Row], measure: str) -> Figure:
    """Return the picture of a measure; `rows` are from `means`, by the pictures' axes and the strategy."""
    shown = _layout(sweep, rows)
    grids = [_grid(rows, measure, shown, strategy) for strategy in shown.panels]
    highest = max((value for grid in grids for line in grid for value in line if not isnan(value)), default=0.0)
    columns = min(_PANELS_IN_A_ROW, len(grids))
    lines = -(-len(grids) // columns)
    width = max(2.2, _CELL_INCHES * len(shown.columns) + 0.8)
    height = max(1.6, _CELL_INCHES * len(shown.lines) + 0.9)
    figure = Figure(figsize=(max(7.0, columns * width + 2.0), lines * height + 1.0), layout="constrained")
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    for place, grid, strategy in zip(places, grids, shown.panels, strict=False):
        image = place.imshow(
            grid, cmap=_COLOURS.get(measure, "YlOrRd"), vmin=0.0, vmax=highest or 1.0, aspect="auto", origin="lower"
        )
        _label(place, shown, strategy)
        if max(len(shown.columns), len(shown.lines)) <= _MOST_NUMBERED:
            _write_numbers(place, grid, highest)
    for place in places[len(grids) :]:
        place.set_axis_off()
    figure.colorbar(image, ax=places, shrink=0.8)
    figure.suptitle(f"{MEASURES[measure]} (mean){shown.note}")
    return figure


def _layout(sweep: Sweep, rows: Sequence[Row]) -> _Layout:
    x, y = axes_of(sweep)
    notes = []

    def some(axis: str, most: int) -> tuple[Any, ...]:
        found = {row[axis] for row in rows}
        values = [value for value in {**sweep.axes, "strategy": sweep.strategies}[axis] if value in found]
        if len(values) <= most:
            return tuple(values)
        notes.append(f"{most} of {len(values):,} values of {axis}")
        return tuple(values[place * (len(values) - 1) // (most - 1)] for place in range(most))

    has_panels = "strategy" not in (x, y)
    columns, lines = some(x, _MOST_VALUES), some(y, _MOST_VALUES)
    panels = some("strategy", _MOST_PANELS) if has_panels else (None,)
    note = f"\nshown: {', '.join(notes)}" if notes else ""
    return _Layout(x=x, y=y, columns=columns, lines=lines, panels=panels, note=note)


def _grid(rows: Sequence[Row], measure: str, shown: _Layout, strategy: str | None) -> list[list[float]]:
    """Return the means by line and column; nan for a missing one."""
    found = {
        (row[shown.y], row[shown.x]): row[measure]
        for row in rows
        if row[measure] is not None and strategy in (None, row["strategy"])
    }
    return [[found.get((line, column), nan) for column in shown.columns] for line in shown.lines]


def _label(place: Any, shown: _Layout, strategy: str | None) -> None:
    for axis, values, name in ((place.xaxis, shown.columns, shown.x), (place.yaxis, shown.lines, shown.y)):
        axis.set_ticks(range(len(values)), [_text(value) for value in values])
        axis.set_label_text(name)
    place.tick_params(labelsize="x-small", length=0)
    if max(len(_text(value)) for value in shown.columns) > 4:
        place.tick_params(axis="x", rotation=90)
    if strategy is not None:
        place.set_title(strategy, fontsize="medium")


def _write_numbers(place: Any, grid: Sequence[Sequence[float]], highest: float) -> None:
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            text = "-" if isnan(value) else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
            colour = "white" if value > 0.6 * highest > 0 else "black"
            place.text(x, y, text, ha="center", va="center", fontsize="xx-small", color=colour)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _bytes(figure: Figure, form: str) -> bytes:
    output = BytesIO()
    # Without the date and with fixed ids, the same table gives the same file.
    with mpl.rc_context({"svg.hashsalt": "odradek"}):
        figure.savefig(output, format=form, dpi=120, metadata={"Date": None} if form == "svg" else {"Software": None})
    return output.getvalue()
