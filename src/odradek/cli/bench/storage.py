"""Comparisons of what a broker does to its files by itself: recovery after a crash.

Both sides have Kafka's directories, so both are filled by clients and crashed in the same way. Each run has a fresh
broker, which is alone; its files are in the page cache.
"""

import os
import time
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.cli.bench.comparisons import Bench
from odradek.cli.bench.measure import Row, Run
from odradek.cli.bench.servers import run_client
from odradek.cli.bench.sides import BrokerProcess, Side, running

_TOPIC: Final = "bench"
_PARTITIONS: Final = 1_000
_PARTITION_MB: Final = 10
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"


def recovery(bench: Bench) -> Iterator[Row]:
    """Start after `kill -9` with nothing known to be synced: every byte is read and checked.

    The time that a start takes after a clean end is taken off, since it is not recovery's.
    """
    partitions = max(1, round(_PARTITIONS * bench.scale))
    megabytes = partitions * _PARTITION_MB

    def run_of(side: Side) -> Run:
        def run() -> Mapping[str, float]:
            with side.broker() as broker:
                with running(broker):
                    where = {"bootstrap_servers": broker.bootstrap_servers, "topic": _TOPIC}
                    run_client("create_topic", {**where, "partitions": partitions})
                    shape = {"record_bytes": 1000, "batch_bytes": 16_384, "partitions": partitions}
                    run_client("produce", {**where, **shape, "total_bytes": megabytes * 1_000_000})
                (broker.data_dir / _RECOVERY_POINTS).unlink(missing_ok=True)
                os.sync()
                crashed = _seconds_to_start(broker)
                clean = _seconds_to_start(broker)
                return {"crashed": crashed, "rate": megabytes / max(crashed - clean, 0.001)}

        return run

    what = f"recovery, {partitions:,} partitions of {_PARTITION_MB} MB"
    figures = bench.measure(what, {side.name: run_of(side) for side in bench.sides})
    yield bench.row(what, "MB/s", figures, "rate")
    yield bench.row("from start after the crash until it serves", "s", figures, "crashed")


def _seconds_to_start(broker: BrokerProcess) -> float:
    """Start it, and end it as an operator does."""
    began = time.perf_counter()
    broker.start()
    took = time.perf_counter() - began
    broker.stop()
    return took
