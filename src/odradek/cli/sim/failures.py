"""The report of a failed seed: findings, faults and last events as text, and messages as swim-lanes in SVG."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from odradek.lab.pictures.svg import COLORS, GAP, Canvas
from odradek.simulation.seed_run import SeedResult

_TAIL: Final = 20
"""Number of the last events that are printed."""
_MESSAGE: Final = re.compile(r" *([\d.]+) s  (\S+) → (\S+): (.*)")
_LANE: Final = 150.0
_STEP: Final = 15.0
_TOP: Final = 30.0


def print_failure(result: SeedResult) -> None:
    """Print findings, faults, the last messages and events, and the traceback."""
    _print("findings", result.findings)
    print_faults(result)
    _print("last messages", result.messages)
    _print("last events", result.trace[-_TAIL:])
    _print("error", result.error.splitlines())


def print_faults(result: SeedResult) -> None:
    _print("faults (number, virtual s, name, brokers)", result.deeds)


def _print(title: str, lines: Sequence[str]) -> None:
    if lines:
        click.echo(f"\n{title}:")
        click.echo("\n".join(f"  {line}" for line in lines))


def write_failure(result: SeedResult, directory: Path) -> list[Path]:
    """Write `sim-SEED.json`, which `--replay` reads, and `sim-SEED.svg`; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    replay, picture = (directory / f"sim-{result.plan.seed}.{kind}" for kind in ("json", "svg"))
    replay.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    picture.write_text(swim_lanes(result), encoding="utf-8")
    return [replay, picture]


def swim_lanes(result: SeedResult) -> str:
    """Return the last messages and the faults as an SVG with a lane for each host; time runs downwards."""
    messages = [match.groups() for line in result.trace if (match := _MESSAGE.match(line))]
    hosts = sorted({host for _, source, target, _ in messages for host in (source, target)})
    places = {host: 70 + _LANE * (number + 0.5) for number, host in enumerate(hosts)}
    canvas = Canvas()
    top = canvas.lines(8, 8, [f"seed {result.plan.seed}: {each}" for each in result.findings[:3]])
    top = canvas.lines(8, top, [f"fault {each}" for each in result.deeds]) + _TOP
    bottom = top + _STEP * (len(messages) + 1)
    for number, (host, x) in enumerate(places.items()):
        canvas.text(x, top - 12, host, anchor="middle")
        canvas.line((x, top), (x, bottom), stroke=COLORS[number % len(COLORS)], width=2)
    for number, (at_s, source, target, what) in enumerate(messages):
        y, x, end = top + _STEP * (number + 1), places[source], places[target]
        head, beside = (6.0, x + _LANE / 2) if end > x else (-6.0, x - _LANE / 2)
        stroke = GAP if what == "reset" else "currentColor"
        canvas.text(8, y, f"{float(at_s):.3f} s", size=9)
        canvas.line((x, y), (end, y), stroke=stroke)
        canvas.polygon((end, y), (end - head, y - 3), (end - head, y + 3), fill=stroke)
        canvas.text(beside, y - 5, what.rpartition(" ")[0] or what, size=8, anchor="middle")
    return canvas.svg(bottom + 12, f"the last messages of seed {result.plan.seed}", sheet=True)
