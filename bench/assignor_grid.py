"""`odradek bench assignor-grid`: server-side assignors, warm, beside Kafka's, on the groups of Kafka's benchmark."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import ceil
from statistics import geometric_mean
from typing import Final

import click
from msgspec.structs import asdict

from bench.measure import Aim, Row, print_rows
from bench.peers.kafka_assignors import GridCell, run_kafka_grid
from odradek.assignors import GroupSubscription, MemberSubscription, create_assignor

AS_FAST_AS_KAFKAS: Final = Aim(1, at_most=True)
_LEAST_RUNS: Final = 3
_BUCKETS: Final = {"homogeneous": 1, "heterogeneous": 5}
"""The number of different subscriptions, without common topics, by Kafka's name."""
_CHILD: Final = "from bench.assignor_grid import run_cells; run_cells()"


@click.command(name="assignor-grid")
@click.option("--members", default=(100, 500, 1_000, 5_000, 10_000), multiple=True, show_default=True)
@click.option("--ratio", "ratios", default=(5, 10, 50), multiple=True, show_default=True, help="Partitions a member.")
@click.option("--topics", default=(10, 100, 1_000), multiple=True, show_default=True)
@click.option("--warm-up", default=0.3, show_default=True, metavar="S", help="Seconds for each cell and side.")
@click.option("--seconds", default=0.3, show_default=True, metavar="S", help="Seconds of measuring, at least 3 runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row, and no means.")
def grid(
    members: Sequence[int],
    ratios: Sequence[int],
    topics: Sequence[int],
    warm_up: float,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    """Assign the groups of Kafka's ServerSideAssignorBenchmark: all of them fresh, and with a last member that joins.

    Cells with fewer partitions than topics are left out, and racks, which Kafka's assignors do not use any more.
    """
    cells = list(_cells(members, ratios, topics))
    ours, kafkas = _ours(cells, warm_up, seconds), run_kafka_grid(cells, warm_up, seconds)
    figures = [
        (cell, {"odradek": of_us, "kafka": of_kafka}) for cell, of_us, of_kafka in zip(cells, ours, kafkas, strict=True)
    ]
    rows = [
        Row(what=_name(cell), unit="CPU ms", figures=by_side, of="odradek", to="kafka", aim=AS_FAST_AS_KAFKAS)
        for cell, by_side in figures
    ]
    print_rows("server-side assignors, warm: ms of CPU for an assignment", rows, as_json=as_json)
    if not as_json:
        print_rows("geometric means over the grid", list(_means(figures)), as_json=False)


def _cells(members: Sequence[int], ratios: Sequence[int], topics: Sequence[int]) -> Iterator[GridCell]:
    for assignor, buckets, joins, size, ratio, count in product(
        ("uniform", "range"), _BUCKETS.values(), (False, True), members, ratios, topics
    ):
        if size * ratio >= count >= buckets:
            yield GridCell(assignor=assignor, members=size, ratio=ratio, topics=count, buckets=buckets, joins=joins)


def _kind(cell: GridCell) -> str:
    subscriptions = next(name for name, buckets in _BUCKETS.items() if buckets == cell.buckets)
    return f"{cell.assignor}, {subscriptions}, {'incremental' if cell.joins else 'full'}"


def _name(cell: GridCell) -> str:
    return f"{_kind(cell)}: {cell.members:,} × {cell.ratio}, {cell.topics:,} topics"


def _means(figures: Sequence[tuple[GridCell, Mapping[str, float]]]) -> Iterator[Row]:
    """Yield a row for each assignor, kind of subscriptions, change, and size."""
    by_name: dict[str, list[Mapping[str, float]]] = {}
    for cell, by_side in figures:
        by_name.setdefault(f"{_kind(cell)}: {cell.members:,} members", []).append(by_side)
    for what, cells in by_name.items():
        means = {side: geometric_mean(each[side] for each in cells) for side in cells[0]}
        yield Row(what=what, unit="CPU ms", figures=means, of="odradek", to="kafka", aim=AS_FAST_AS_KAFKAS)


def _ours(cells: Sequence[GridCell], warm_up: float, seconds: float) -> list[float]:
    asked = json.dumps({"cells": [asdict(cell) for cell in cells], "warm_up": warm_up, "seconds": seconds})
    done = subprocess.run([sys.executable, "-c", _CHILD], input=asked, capture_output=True, text=True, check=True)
    milliseconds: list[float] = json.loads(done.stdout)
    return milliseconds


def run_cells() -> None:
    """Read cells as JSON from stdin, and print the CPU ms of each."""
    asked = json.loads(sys.stdin.read())
    found = []
    for fields in asked["cells"]:
        cell = GridCell(**fields)
        group = _group(cell)
        _timed(cell.assignor, group, asked["warm_up"])
        found.append(_timed(cell.assignor, group, asked["seconds"]))
    print(json.dumps(found))


def _timed(assignor: str, group: GroupSubscription, seconds: float) -> float:
    """Return the mean CPU ms of an assignment, including access to each member's partitions."""
    runs, started = 0, time.thread_time()
    while runs < _LEAST_RUNS or time.thread_time() - started < seconds:
        assignment = create_assignor(assignor).assign(group)
        for member in assignment:
            assignment[member]  # computed at its first access
        runs += 1
    return (time.thread_time() - started) * 1000 / runs


def _group(cell: GridCell) -> GroupSubscription:
    names = [f"topic-{number}" for number in range(cell.topics)]
    partitions = dict.fromkeys(names, cell.members * cell.ratio // cell.topics)
    topics, size = ceil(cell.topics / cell.buckets), ceil(cell.members / cell.buckets)
    buckets = [tuple(names[first : first + topics]) for first in range(0, cell.topics, topics)]
    members = {f"member{number}": MemberSubscription(topics=buckets[number // size]) for number in range(cell.members)}
    if not cell.joins:
        return GroupSubscription(partitions=partitions, members=members)
    last, joining = members.popitem()
    had = create_assignor(cell.assignor).assign(GroupSubscription(partitions=partitions, members=members))
    owning = {
        name: MemberSubscription(topics=each.topics, owned=list(had[name]), generation=1)
        for name, each in members.items()
    }
    return GroupSubscription(partitions=partitions, members=owning | {last: joining})
