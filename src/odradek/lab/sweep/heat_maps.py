"""Draws the heat maps of a sweep: one for each measure, with a panel for each strategy."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.lab.pictures import picture
from odradek.lab.pictures.charts import HeatMap, HeatPanel
from odradek.lab.sweep.settings import Sweep
from odradek.lab.sweep.summary import MEASURES, means

Row = Mapping[str, Any]

_MOST_VALUES: Final = 40
"""Limit of the values on an axis; the picture says which are left out."""
_MOST_PANELS: Final = 12


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
    rows = means(table, sweep, list(dict.fromkeys((*axes_of(sweep), "strategy"))))
    return {
        f"{measure}.svg": picture(heat_map(sweep, rows, measure))
        for measure in MEASURES
        if any(row[measure] is not None for row in rows)
    }


def heat_map(sweep: Sweep, rows: Sequence[Row], measure: str) -> HeatMap:
    """Return the chart of a measure; `rows` are from `means`, by the pictures' axes and the strategy."""
    x, y = axes_of(sweep)
    notes = []

    def some(axis: str, most: int) -> tuple[Any, ...]:
        found = {row[axis] for row in rows}
        values = [value for value in {**sweep.axes, "strategy": sweep.strategies}[axis] if value in found]
        if len(values) <= most:
            return tuple(values)
        notes.append(f"{most} of {len(values):,} values of {axis}")
        return tuple(values[place * (len(values) - 1) // (most - 1)] for place in range(most))

    columns, lines = some(x, _MOST_VALUES), some(y, _MOST_VALUES)
    strategies = some("strategy", _MOST_PANELS) if "strategy" not in (x, y) else (None,)
    found = {(row["strategy"] if strategies != (None,) else None, row[y], row[x]): row[measure] for row in rows}
    return HeatMap(
        title=f"{MEASURES[measure]} (mean)",
        x_label=x,
        y_label=y,
        columns=tuple(map(_text, columns)),
        lines=tuple(map(_text, lines)),
        panels=tuple(
            HeatPanel(
                title=strategy or "",
                values=tuple(tuple(found.get((strategy, line, column)) for column in columns) for line in lines),
            )
            for strategy in strategies
        ),
        more_is_better=measure == "local",
        notice=f"Shown: {', '.join(notes)}." if notes else "",
    )


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
