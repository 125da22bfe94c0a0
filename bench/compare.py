"""`odradek bench compare`: one broker beside a peer's, with a table for each aim of docs/performance.md.

`comparisons` and `storage_comparisons` measure; this module has the options and the output. Progress goes to stderr.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import click

from bench import comparisons, storage_comparisons
from bench.comparisons import Bench
from bench.measure import Row, print_rows
from bench.peers.sides import kafka_side, odradek_side
from bench.progress import progress
from odradek.cli.common import key_and_value

PEERS = {"kafka": kafka_side}
COMPARISONS: Final[Mapping[str, Callable[[Bench], Iterator[Row]]]] = {
    "start": comparisons.start,
    "memory": comparisons.memory,
    "produce": comparisons.produce,
    "fetch": comparisons.fetch,
    "requests": comparisons.requests,
    "latency": comparisons.latency,
    "recovery": storage_comparisons.recovery,
    "compaction": storage_comparisons.compaction,
}
"""The comparisons by name, in order. No other broker runs during the last two."""


@click.command(name="compare")
@click.option("--peer", type=click.Choice(list(PEERS)), default="kafka", show_default=True, help="The other side.")
@click.option("--only", metavar="NAMES", help=f"Some of {', '.join(COMPARISONS)}; separated by commas.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Times each side runs.")
@click.option("--mib", type=click.IntRange(8), default=256, show_default=True, help="What a throughput round moves.")
@click.option(
    "--scale",
    type=click.FloatRange(0.001, 1),
    default=0.1,
    show_default=True,
    help="Of recovery's 1,000 partitions of 10 MB.",
)
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="Of a latency round.")
@click.option("--warm-up", type=click.FloatRange(0), default=20.0, show_default=True, help="Seconds, for each side.")
@click.option(
    "-o", "options", multiple=True, metavar="KEY=VALUE", help="Of our broker's configuration; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def command(
    *,
    peer: str,
    only: str | None,
    rounds: int,
    mib: int,
    scale: float,
    seconds: float,
    warm_up: float,
    options: Sequence[str],
    as_json: bool,
) -> None:
    """Compare with a peer on this machine, by the same client: figures of both, their ratio, the aim.

    Sides take turns within each round, every other round backwards, and medians are shown. Both get the same warm-up,
    since a JVM needs one; start, memory, recovery and compaction are taken without.
    """
    names = _chosen(only)
    # On SIGTERM the `finally` stops the brokers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress() as say:
        bench = Bench(
            ours=odradek_side(dict(map(key_and_value, options))),
            peer=PEERS[peer](),
            rounds=rounds,
            mib=mib,
            scale=scale,
            seconds=seconds,
            warm_up_s=warm_up,
            say=say,
        )
        try:
            for name in names:
                rows: list[Row] = []
                if name in ("recovery", "compaction"):
                    bench.close()
                try:
                    rows.extend(COMPARISONS[name](bench))
                finally:
                    # Measured rows are shown even if a later measurement fails.
                    title = f"{name}: medians of {rounds}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
                    print_rows(title, rows, as_json=as_json)
        finally:
            bench.close()


def _chosen(only: str | None) -> list[str]:
    if only is None:
        return list(COMPARISONS)
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in COMPARISONS:
            raise click.BadParameter(f"there is no {name!r}, only {', '.join(COMPARISONS)}", param_hint="--only")
    return [name for name in COMPARISONS if name in wanted]
