"""`odradek lab replay`: which member of a live group owned which partition in the past, and when none did."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import click

from odradek.cli.checks import COUNT
from odradek.cli.common import cluster_options, console, json_option, print_json, say, with_admin
from odradek.cli.lab.picture import picture_option, write_picture
from odradek.lab.notation import partitions_text
from odradek.lab.pictures.lanes import Axis, axis_of, steps_of
from odradek.lab.pictures.views import timelines_chart
from odradek.lab.replay import replay as replay_history
from odradek.lab.timeline import Span, Timeline
from odradek.model.texts import one_line

_COLUMNS: Final = 60
"""Columns of the timeline in a terminal."""
_MOST_MEMBERS: Final = 40
_MOST_GAPS: Final = 20
_LEVELS: Final = "▁▂▃▄▅▆▇█"


@click.command()
@click.argument("group")
@click.option("--limit", default=20, show_default=True, metavar="N", type=COUNT, help="Only the last N rebalances.")
@picture_option
@json_option
@cluster_options
def replay(*, group: str, limit: int, picture: str | None, as_json: bool) -> None:
    """Show who owned which partition of a live group, from its rebalance journal, and when nobody did.

    A row is a member, time runs across, and times without a rebalance are short. A bar's height is the member's number
    of partitions, relative to its highest number. --json has an object for each time span in which a member (null:
    nobody) owned a partition.
    """
    made = replay_history(group, with_admin(lambda cluster: cluster.rebalance_history(group, limit=limit)))
    write_picture(picture, lambda: timelines_chart(made.title, [made]))
    if as_json:
        for span in made.spans:
            print_json(_object(span))
        return
    _print(made)


def _object(span: Span) -> dict[str, Any]:
    return {
        "topic": span.partition.topic,
        "partition": span.partition.partition,
        "member": span.member,
        "from_ms": span.from_ms,
        "to_ms": span.to_ms,
    }


def _print(made: Timeline) -> None:
    from rich.text import Text

    axis, out = axis_of(made), console()
    by_member: dict[str | None, list[Span]] = {}
    for span in made.spans:
        by_member.setdefault(span.member, []).append(span)
    members = made.members[:_MOST_MEMBERS]
    width = max(len("without an owner"), *(len(one_line(each)) for each in members)) + 2
    for member in members:
        out.print(Text(one_line(member).ljust(width) + _strip(by_member[member], axis)), soft_wrap=True)
    if made.gaps:
        row = Text("without an owner".ljust(width) + _strip(by_member[None], axis), style="bold red")
        out.print(row, soft_wrap=True)
    if len(made.members) > len(members):
        say(f"shown: {len(members)} of {len(made.members):,} members; --json has all")
    say(f"from {_time(made.start_ms)} to {_time(made.end_ms)} UTC")
    for number, mark in enumerate(made.marks, 1):
        say(f"{number:>3}. {_time(mark.from_ms)}  {(mark.to_ms - mark.from_ms) / 1000:.3f} s  {mark.text}")
    for line in _gap_lines(made):
        out.print(Text(one_line(line), style="red"), soft_wrap=True)
    if made.left_out:
        say(f"the journal names no owners of {made.left_out:,} more partitions")


def _strip(spans: list[Span], axis: Axis) -> str:
    """Return a row of the timeline; a column shows the highest number of partitions in its time span."""
    totals = [0] * _COLUMNS
    steps = steps_of(spans)
    most = max(count for _, count in steps)
    for (from_ms, count), (to_ms, _) in pairwise(steps):
        first = min(int(axis.share(from_ms) * _COLUMNS), _COLUMNS - 1)
        last = max(first + 1, min(round(axis.share(to_ms) * _COLUMNS), _COLUMNS))
        for column in range(first, last):
            totals[column] = max(totals[column], count)
    return "".join("·" if not total else _LEVELS[-(-8 * total // most) - 1] for total in totals)


def _gap_lines(made: Timeline) -> Iterator[str]:
    """Yield a line for each time span without an owner, with its partitions, and one for the sum."""
    gaps: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for gap in made.gaps:
        gaps.setdefault((gap.from_ms, gap.to_ms), []).append(gap.partition)
    for (from_ms, to_ms), partitions in list(gaps.items())[:_MOST_GAPS]:
        yield f"without an owner: {_time(from_ms)} for {(to_ms - from_ms) / 1000:.3f} s: {partitions_text(partitions)}"
    if len(gaps) > _MOST_GAPS:
        yield f"and {len(gaps) - _MOST_GAPS:,} gaps more; --json has all"
    yield f"in all: {made.unowned_partition_ms / 1000:,.3f} partition-seconds without an owner"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03}"
