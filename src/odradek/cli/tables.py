"""Tables for a terminal: which columns fit into its width, and how their cells are folded.

A table keeps the columns that its command is for: they are never dropped, and only folded between words. Other columns
of text are folded first, to `_NARROW` characters, and then dropped: `_DROPPED_FIRST`, then from the right. If the kept
columns alone are too wide, lines are longer than the terminal.
"""

import textwrap
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from odradek.model.texts import one_line

KEPT: Final = frozenset({
    "TOPIC", "PARTITION", "LAG", "LAG/S", "CAUSE", "SETTLED-S", "KEY", "VALUE", "STATE", "LEADER", "ISR", "EARLIEST",
    "LATEST", "OFFSET", "NEW-OFFSET", "RESULT", "ERROR", "#PARTITIONS", "#MEMBERS", "BYTES", "ADDRESS", "TARGET", "TO",
    "MEMBER", "COUNT", "HELD-BY", "STRATEGY", "MOVED", "STOPPED", "TRANSACTIONAL-ID", "TOPIC-PARTITIONS",
})  # fmt: skip
"""Headings of columns that their commands are for; a table without one keeps its first column."""
_DROPPED_FIRST: Final = ("CLIENT-ID", "HOST", "GROUP-INSTANCE-ID", "RACK")
_GAP: Final = "  "
_NARROW: Final = 16


class _Column(Struct):
    """A column: its cells, its `width` in characters, and the `least` width that it can be folded to."""

    heading: str
    cells: list[str]
    is_number: bool
    is_kept: bool
    width: int
    least: int


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, *, keep: Collection[str] = KEPT
) -> tuple[list[str], list[str]]:
    """Return the lines of a table, the headings first, and the headings of columns that `width` has no room for.

    Numbers are aligned to the right, and None is a dash. A `width` of None is unlimited.
    """
    kept = keep if any(name in keep for name in columns) else columns[:1]
    made = [_column(name, [row[index] for row in rows], is_kept=name in kept) for index, name in enumerate(columns)]
    shown = made if width is None else _fitted(made, width)
    lines = _line(shown, [each.heading for each in shown])
    for number in range(len(rows)):
        lines += _line(shown, [each.cells[number] for each in shown])
    return lines, [each.heading for each in made if each not in shown]


def _column(heading: str, values: Sequence[object], *, is_kept: bool) -> _Column:
    cells = ["-" if value is None else _cell(str(value)) for value in values]
    is_number = bool(values) and all(isinstance(value, int | None) for value in values)
    width = max(len(heading), *map(len, cells)) if cells else len(heading)
    least = width if is_number else max(len(heading), _NARROW)
    if is_kept:
        least = max(least, *(len(word) for cell in cells for word in cell.split()), 0)
    return _Column(heading, cells, is_number, is_kept, width, min(width, least))


def _cell(text: str) -> str:
    """Return a text on one line, in quotation marks if blanks at its ends would not be seen."""
    return one_line(text if text == text.strip() else f'"{text}"')


def _fitted(columns: Sequence[_Column], width: int) -> list[_Column]:
    """Return the columns to show; those that are too wide are narrowed."""
    shown = list(columns)
    while sum(each.least for each in shown) + len(_GAP) * (len(shown) - 1) > width:
        others = [each for each in shown if not each.is_kept]
        if not others:
            break
        shown.remove(next((each for each in others if each.heading in _DROPPED_FIRST), others[-1]))
    room = width - len(_GAP) * (len(shown) - 1)
    while sum(each.width for each in shown) > room:
        widest = max(shown, key=lambda each: (each.width > each.least, not each.is_kept, each.width))
        if widest.width == widest.least:
            break
        widest.width -= 1
    return shown


def _line(columns: Sequence[_Column], cells: Sequence[str]) -> list[str]:
    """Return a row as one line, or as several if a cell is folded."""
    folded = [
        [cell] if len(cell) <= each.width else textwrap.wrap(cell, each.width, break_on_hyphens=False)
        for each, cell in zip(columns, cells, strict=True)
    ]
    lines = []
    for number in range(max(map(len, folded))):
        parts = [cell[number] if number < len(cell) else "" for cell in folded]
        aligned = (
            part.rjust(each.width) if each.is_number else part.ljust(each.width)
            for each, part in zip(columns, parts, strict=True)
        )
        lines.append(_GAP.join(aligned).rstrip())
    return lines
