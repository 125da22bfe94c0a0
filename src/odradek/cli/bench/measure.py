"""Rounds, medians and tables, and what the kernel knows of a process (CPU seconds, resident memory)."""

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MIB = 1024 * 1024
_LEAST_WIDTH = 132


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used, user and system, in seconds; its resolution is a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured thing: the figure of each side, by name, and which two make the ratio."""

    what: str
    unit: str
    figures: Mapping[str, float]
    of: str
    """The side that is ours."""
    to: str
    """The side that it is compared with."""
    more_is_better: bool = True
    aim: str = ""

    @property
    def ratio(self) -> float:
        """Ours over the peer's; whether more is better the unit says."""
        return self.figures[self.of] / self.figures[self.to] if self.figures[self.to] else float("nan")


def rounds(count: int, sides: Mapping[str, Callable[[], Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Run every side `count` times, in turns, and return the median of every figure by side and name."""
    seen: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for _ in range(count):
        for side, run in sides.items():
            for name, figure in run().items():
                seen[side].setdefault(name, []).append(figure)
    return {side: {name: statistics.median(values) for name, values in by.items()} for side, by in seen.items()}


def print_rows(title: str, rows: Sequence[Row], *, as_json: bool) -> None:
    """One table, or one JSON object per row."""
    if as_json:
        import json

        for row in rows:
            record = {"what": row.what, "unit": row.unit, **row.figures, "ratio": round(row.ratio, 3), "of": row.of}
            print(json.dumps(record | {"to": row.to, "aim": row.aim}, ensure_ascii=False), flush=True)
        return
    sides = list(dict.fromkeys(side for row in rows for side in row.figures))
    table = Table(title=title)
    for heading in ("what", "unit", *sides, "ratio", "aim"):
        table.add_column(heading, justify="left" if heading in {"what", "unit", "aim"} else "right")
    for row in rows:
        figures = [_short(row.figures[side]) if side in row.figures else "" for side in sides]
        table.add_row(row.what, row.unit, *figures, f"{row.ratio:.2f} ({row.of}/{row.to})", row.aim)
    # Wider than a narrow terminal: a table that wraps its figures is worse than one that wraps its lines.
    Console(width=max(Console().width, _LEAST_WIDTH)).print(table)


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
