"""The subcommands of `odradek bench groups`: the group coordinator beside Apache Kafka's."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeVar

import click

from bench.group_loading import loading_rows
from bench.group_rebalances import ASSIGNORS, rebalance_rows
from bench.group_requests import REQUESTS, request_rows
from bench.measure import print_rows
from bench.peers.sides import kafka_side, odradek_side

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


def _common(function: F) -> F:
    """Add the options of all three commands."""
    function = click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")(function)
    rounds = click.option("--rounds", "count", default=5, show_default=True, help="Times each side runs: medians.")
    return rounds(function)


@click.group()
def groups() -> None:
    """Compare the group coordinator with Apache Kafka's."""


@groups.command()
@click.option("--members", "counts", default=(10, 100), multiple=True, show_default=True, help="May be repeated.")
@click.option("--partitions", default=1_000, show_default=True, help="Partitions that the members share.")
@click.option("--assignor", type=click.Choice(ASSIGNORS), default=ASSIGNORS[0], show_default=True)
@click.option("--restarts", type=click.IntRange(min=1), help="Members that restart, one by one; all by default.")
@_common
def rebalances(
    counts: Sequence[int], partitions: int, assignor: str, restarts: int | None, count: int, *, as_json: bool
) -> None:
    """Rebalance headless members: one joins, one leaves, a tenth dies, all restart; and their heartbeats' cost."""
    with ExitStack() as stack:
        servers = [stack.enter_context(side.server(_OPTIONS)) for side in (odradek_side(), kafka_side())]
        rows = [
            row for members in counts for row in rebalance_rows(servers, members, partitions, assignor, restarts, count)
        ]
    print_rows(f"{assignor}, {partitions} partitions, heartbeats every 100 ms", rows, as_json=as_json)


@groups.command()
@click.option("--groups", "number", default=20, show_default=True, help="Groups of one member each.")
@click.option("--in-flight", default=64, show_default=True, help="Requests that wait for answers on a connection.")
@click.option("--seconds", default=3.0, show_default=True, help="How long a round sends.")
@click.option("--warm-up", default=10.0, show_default=True, help="Seconds of each request, for each side.")
@click.option("--only", multiple=True, type=click.Choice(REQUESTS), help="Only these requests; may be repeated.")
@_common
def requests(
    number: int, in_flight: int, seconds: float, warm_up: float, only: Sequence[str], count: int, *, as_json: bool
) -> None:
    """Send heartbeats and commits: how many for a second of broker CPU."""
    with ExitStack() as stack:
        servers = [stack.enter_context(side.server(_OPTIONS)) for side in (odradek_side(), kafka_side())]
        load = {"groups": number, "in_flight": in_flight, "seconds": seconds}
        rows = list(request_rows(servers, load, warm_up_s=warm_up, count=count, only=only))
    print_rows(f"{number} groups, {in_flight} requests in flight for each", rows, as_json=as_json)


@groups.command()
@click.option("--commits", default=1_000_000, show_default=True, help="Offsets in the log.")
@click.option("--keys", default=(1_000_000, 10_000), multiple=True, show_default=True, help="Different ones of them.")
@_common
def loading(commits: int, keys: Sequence[int], count: int, *, as_json: bool) -> None:
    """Start a broker that has committed offsets to load, until it answers an OffsetFetch."""
    sides = odradek_side(), kafka_side()
    rows = [row for each in keys for row in loading_rows(sides, commits=commits, keys=each, count=count)]
    print_rows("loading __consumer_offsets, one partition, commits of 10 offsets", rows, as_json=as_json)
