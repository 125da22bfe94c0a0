"""`odradek bench failover`, `replicated` and `many-partitions`: three brokers of Odradek, and optionally of a peer."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from bench import cluster_comparisons
from bench.cluster_comparisons import BROKERS, ClusterBench
from bench.measure import Row, print_rows
from bench.peers.clusters import ClusterSide, kafka_cluster_side, odradek_cluster_side
from bench.progress import progress
from odradek.cli.checks import key_and_value

F = TypeVar("F", bound=Callable[..., Any])
PEERS: Final[dict[str, Callable[[], ClusterSide]]] = {"kafka": kafka_cluster_side}


def _common(rounds: int, session_timeout_ms: int) -> Callable[[F], F]:
    """Return a decorator that adds the options of all three commands, with these defaults."""
    options = [
        click.option("--peer", type=click.Choice(list(PEERS)), help="The other side; without it, ours is alone."),
        click.option(
            "--rounds", type=click.IntRange(1), default=rounds, show_default=True, help="Times each side runs."
        ),
        click.option(
            "--session-timeout-ms",
            type=click.IntRange(500),
            default=session_timeout_ms,
            show_default=True,
            help="For how long a broker may be silent, on both sides.",
        ),
        click.option(
            "-o", "options", multiple=True, metavar="KEY=VALUE", help="Of our brokers' configuration; may be repeated."
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON object per row."),
    ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command(name="failover")
@_common(rounds=5, session_timeout_ms=3000)
@click.option("--metadata", metavar="URL", help="The metadata tree of our side, empty; by default a new one in SQLite.")
def failover(*, as_json: bool, **asked: Any) -> None:
    """Measure from a leader's end to the next acknowledged write: three replicas, two in sync, acks=all.

    The broker that leads a partition is killed with SIGKILL, or stopped with SIGSTOP past its session, while an
    idempotent librdkafka producer sends 200 records a second; it may be the controller, too. It comes back, and is in
    sync, before the next round. No record may be lost or duplicated.
    """
    with _bench(**asked) as bench:
        _print("failover", bench, cluster_comparisons.failover(bench), as_json=as_json)


@click.command(name="replicated")
@_common(rounds=3, session_timeout_ms=18_000)
@click.option("--mib", type=click.IntRange(1), default=128, show_default=True, help="What a round moves.")
@click.option("--warm-up", type=click.FloatRange(0), default=20.0, show_default=True, help="Seconds, for each side.")
def replicated(*, as_json: bool, mib: int, warm_up: float, **asked: Any) -> None:
    """Produce with acks=all to three replicas: MiB/s, and the CPU of all three brokers for each MiB."""
    with _bench(**asked) as bench:
        rows = cluster_comparisons.replicated(bench, mib=mib, warm_up_s=warm_up)
        _print("replicated", bench, rows, as_json=as_json)


@click.command(name="replicated-transactions")
@_common(rounds=3, session_timeout_ms=18_000)
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="Of a measurement.")
@click.option("--warm-up", type=click.FloatRange(1), default=20.0, show_default=True, help="Seconds, for each side.")
@click.option(
    "--only", default="", metavar="WORDS", help="Rows whose name has these words, such as 'librdkafka, 10 rec'."
)
def replicated_transactions(*, as_json: bool, seconds: float, warm_up: float, only: str, **asked: Any) -> None:
    """Commit transactions to three replicas: transactions/s, the times of commits, and the CPU of all three brokers."""
    with _bench(**asked) as bench:
        rows = cluster_comparisons.replicated_transactions(bench, seconds=seconds, warm_up_s=warm_up, only=only)
        _print("transactions", bench, rows, as_json=as_json)


@click.command(name="many-partitions")
@_common(rounds=1, session_timeout_ms=18_000)
@click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True, help="How many in all.")
@click.option("--replicas", type=click.IntRange(1, BROKERS), default=BROKERS, show_default=True, help="Of each.")
def many_partitions(*, as_json: bool, partitions: int, replicas: int, **asked: Any) -> None:
    """Create many partitions, kill a broker, then the controller: measure the time until all are led, and memory."""
    with _bench(**asked, has_metrics=True) as bench:
        rows = cluster_comparisons.many_partitions(bench, partitions=partitions, replicas=replicas)
        _print(f"{partitions:,} partitions of {replicas} replicas", bench, rows, as_json=as_json)


@contextmanager
def _bench(
    *,
    peer: str | None,
    rounds: int,
    session_timeout_ms: int,
    options: Sequence[str],
    has_metrics: bool = False,
    metadata: str | None = None,
) -> Iterator[ClusterBench]:
    """Yield the benchmark of these options; stop its brokers at the block's end."""
    # On SIGTERM the `finally` stops the brokers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sides = [odradek_cluster_side(dict(map(key_and_value, options)), has_metrics=has_metrics, metadata=metadata)]
    if peer is not None:
        sides.append(PEERS[peer]())
    with progress() as say:
        bench = ClusterBench(sides=sides, rounds=rounds, session_timeout_ms=session_timeout_ms, say=say)
        try:
            yield bench
        finally:
            bench.close()


def _print(title: str, bench: ClusterBench, measured: Iterable[Row], *, as_json: bool) -> None:
    rows: list[Row] = []
    try:
        rows.extend(measured)
    finally:
        # Measured rows are shown even if a later measurement fails.
        described = f"{title}: {BROKERS} brokers, {bench.rounds} rounds, {os.cpu_count()} cores"
        print_rows(f"{described}, load {os.getloadavg()[0]:.1f}", rows, as_json=as_json)
