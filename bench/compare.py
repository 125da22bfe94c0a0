"""`odradek bench compare`: one broker beside a peer's, with a table for each aim of docs/performance.md.

`comparisons` and `storage_comparisons` measure; this module has the options and the output. Progress goes to stderr.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from bench import comparisons, storage_comparisons, transaction_comparisons
from bench.clients.librdkafka import CLIENT_SETTINGS
from bench.comparisons import Bench
from bench.measure import Row, print_rows
from bench.peers.security import BenchSecurity
from bench.peers.sides import kafka_side, odradek_side
from bench.progress import progress
from odradek.cli.checks import key_and_value
from odradek.model import SecurityProtocol

COMPARISONS: Final[Mapping[str, Callable[[Bench], Iterator[Row]]]] = {
    "start": comparisons.start,
    "memory": comparisons.memory,
    "produce": comparisons.produce,
    "fetch": comparisons.fetch,
    "requests": comparisons.requests,
    "logins": comparisons.logins,
    "transactions": transaction_comparisons.transactions,
    "isolation": transaction_comparisons.isolation,
    "latency": comparisons.latency,
    "recovery": storage_comparisons.recovery,
    "compaction": storage_comparisons.compaction,
    "coordinator": transaction_comparisons.coordinator,
}
"""The comparisons by name, in order."""
_ALONE: Final = ("recovery", "compaction", "coordinator")
"""Comparisons during which no other broker runs."""


@click.command(name="compare")
@click.option("--peer", default="kafka", show_default=True, help="The other side: kafka, or another source tree.")
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
@click.option(
    "--security",
    type=click.Choice([each.value.lower() for each in SecurityProtocol], case_sensitive=False),
    help="Of the clients' connections, on both sides; users log in by PLAIN.",
)
@click.option("--acls", type=click.IntRange(0), help="ACLs of other users, on both sides; needs a sasl protocol.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Of the records of `produce`.",
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
    security: str | None,
    acls: int | None,
    compression: str,
    as_json: bool,
) -> None:
    """Compare with a peer on this machine, by the same client: figures of both, their ratio, the aim.

    Sides take turns within each round, every other round backwards, and medians are shown. Both get the same warm-up,
    since a JVM needs one; start, memory, recovery, compaction and coordinator are taken without.
    """
    names = _chosen(only)
    protocol = None if security is None else SecurityProtocol(security.upper())
    if acls is not None and (protocol is None or not protocol.uses_sasl):
        raise click.BadParameter("needs --security sasl_plaintext or sasl_ssl", param_hint="--acls")
    if peer != "kafka" and not Path(peer, "src", "odradek").is_dir():
        raise click.BadParameter(f"{peer!r} is neither kafka nor a source tree of Odradek", param_hint="--peer")
    # On SIGTERM the `finally` stops the brokers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress() as say, tempfile.TemporaryDirectory(prefix="odradek-bench-keys-") as keys:
        secured = None if protocol is None else BenchSecurity(protocol=protocol, directory=Path(keys), acls=acls)
        if secured is not None:
            secured.use()
        own = dict(map(key_and_value, options))
        bench = Bench(
            ours=odradek_side(own, secured),
            peer=kafka_side(secured) if peer == "kafka" else odradek_side(own, secured, tree=Path(peer).resolve()),
            rounds=rounds,
            mib=mib,
            scale=scale,
            seconds=seconds,
            warm_up_s=warm_up,
            compression=compression,
            say=say,
        )
        try:
            for name in names:
                rows: list[Row] = []
                if name in _ALONE:
                    bench.close()
                try:
                    rows.extend(COMPARISONS[name](bench))
                finally:
                    # Measured rows are shown even if a later measurement fails.
                    title = f"{name}: medians of {rounds}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
                    print_rows(title, rows, as_json=as_json)
        finally:
            bench.close()
            os.environ.pop(CLIENT_SETTINGS, None)


def _chosen(only: str | None) -> list[str]:
    if only is None:
        return list(COMPARISONS)
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in COMPARISONS:
            raise click.BadParameter(f"there is no {name!r}, only {', '.join(COMPARISONS)}", param_hint="--only")
    return [name for name in COMPARISONS if name in wanted]
