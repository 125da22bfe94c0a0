"""Runs sides in turn, takes medians, prints tables, and reads a process's CPU seconds and resident memory."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from rich.console import Console
from rich.table import Table

_CPUCLOCK_SCHED = 2
"""The kind of CPU clock, in the number that Linux gives to a process's clock: see clock_getcpuclockid(3)."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MIB = 1024 * 1024
_LEAST_WIDTH = 132
_MET = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, user and system, in seconds, to the nanosecond.

    Raises `OSError` if there is no such process.
    """
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def cpu_seconds_of_tree(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, also of ended ones that were waited for."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            fields = rest.rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(number))
            ticks[int(number)] = sum(map(int, fields[11:15]))
    waiting, total = [pid], 0
    while waiting:
        each = waiting.pop()
        total += ticks.get(each, 0)
        waiting += children.get(each, ())
    return total / _TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def peak_resident_mib(pid: int) -> float:
    """Return the peak of a process's resident memory, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


class Aim(Struct, frozen=True):
    """The least ratio to reach, or with `at_most` the greatest one allowed."""

    ratio: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.ratio:g}"

    def is_met(self, ratio: float) -> bool:
        """Return whether a ratio, rounded to two decimals as printed, meets the aim."""
        shown = float(f"{ratio:.2f}")
        return shown <= self.ratio if self.at_most else shown >= self.ratio


class Row(Struct, frozen=True, kw_only=True):
    """One measurement: the figure of each side by name, and the two sides of the ratio."""

    what: str
    unit: str
    figures: Mapping[str, float]
    of: str
    """The side whose figure is divided by that of `to`: Odradek's."""
    to: str | None
    """The side to compare with, if any."""
    aim: Aim | None = None

    @property
    def ratio(self) -> float:
        """The figure of `of` divided by that of `to`; nan without `to`. The unit tells whether more is better."""
        peers = 0.0 if self.to is None else self.figures[self.to]
        return self.figures[self.of] / peers if peers else float("nan")

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets the aim; None without an aim or a peer."""
        return None if self.aim is None or self.to is None else self.aim.is_met(self.ratio)


Run = Callable[[], Mapping[str, float]]


def turns(
    count: int, sides: Mapping[str, Run], *, say: Callable[[str], None] = lambda _: None
) -> dict[str, dict[str, list[float]]]:
    """Run every side `count` times and return every figure by side and name; `say` reports the next run.

    Sides take turns, and every other round goes backwards (A B, B A), so that no side always runs after the same one.
    """
    seen: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(count):
        for side, run in list(sides.items())[:: -1 if number % 2 else 1]:
            say(f"round {number + 1} of {count}, {side}")
            for name, figure in run().items():
                seen[side].setdefault(name, []).append(figure)
    return seen


def rounds(
    count: int, sides: Mapping[str, Run], *, say: Callable[[str], None] = lambda _: None
) -> dict[str, dict[str, float]]:
    """Run every side `count` times, as `turns` does; return the median of every figure by side and name."""
    seen = turns(count, sides, say=say)
    return {side: {name: statistics.median(values) for name, values in by.items()} for side, by in seen.items()}


def print_rows(title: str, rows: Sequence[Row], *, as_json: bool) -> None:
    """Print rows as one table, or as one JSON object each."""
    if not rows:
        return
    if as_json:
        for row in rows:
            print(json.dumps({"title": title, **_record(row)}, ensure_ascii=False), flush=True)
        return
    sides = list(dict.fromkeys(side for row in rows for side in row.figures))
    table = Table(title=title)
    pairs = {(row.of, row.to) for row in rows if row.to is not None}
    for heading in ("what", "unit", *sides, *(("ratio", "aim", "met") if pairs else ())):
        table.add_column(heading, justify="right" if heading in {*sides, "ratio"} else "left")
    for row in rows:
        figures = [_short(row.figures[side]) if side in row.figures else "" for side in sides]
        compared: tuple[str, ...] = ()
        if row.to is not None:
            ratio = f"{row.ratio:.2f}" if len(pairs) == 1 else f"{row.ratio:.2f} ({row.of}/{row.to})"
            compared = ratio, "" if row.aim is None else str(row.aim), _MET[row.met]
        table.add_row(row.what, row.unit, *figures, *compared)
    if len(pairs) == 1:
        table.caption = "ratio: {} over {}".format(*pairs.pop())
    # Wider than a narrow terminal: wrapped lines are easier to read than wrapped figures.
    Console(width=max(Console().width, _LEAST_WIDTH)).print(table)


def _record(row: Row) -> dict[str, object]:
    figures = {side: round(figure, 4) for side, figure in row.figures.items()}
    told = {"what": row.what, "unit": row.unit, **figures}
    if row.to is None:
        return told
    told |= {"ratio": round(row.ratio, 3), "of": row.of, "to": row.to}
    return told if row.aim is None else told | {"aim": str(row.aim), "met": row.met}


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
