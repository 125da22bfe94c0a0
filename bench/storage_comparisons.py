"""Comparisons of a broker's work on its log files: recovery after a crash, and compaction.

Both sides have Kafka's directory format, so both are filled by clients and killed in the same way, and the end of
compaction is read from the same checkpoint file. Each run has a new broker, and no other one runs; its files are in the
page cache.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.clients.processes import run_client
from bench.comparisons import Bench
from bench.measure import Row, Run
from bench.peers.sides import BrokerProcess, Side, running
from odradek.model import UnavailableError

_MIB: Final = 1024 * 1024
_TOPIC: Final = "bench"
_PARTITIONS: Final = 1_000
_PARTITION_MB: Final = 10
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"

_CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
_CLEANING: Final = {
    # Frequent checks notice the end of compaction at once, and do not change the cleaner's speed.
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
}
_SEGMENT_MIB: Final = 32
_KEYS: Final = 50_000
_POLL_S: Final = 0.02
_CLEANED_WITHIN_S: Final = 300.0


def recovery(bench: Bench) -> Iterator[Row]:
    """Start after `kill -9` without a recovery point, so that every byte is read and checked.

    The rate excludes the time of a start after a clean stop, which has no recovery.
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
    """Start the broker, stop it cleanly, and return the seconds of the start."""
    began = time.perf_counter()
    broker.start()
    took = time.perf_counter() - began
    broker.stop()
    return took


def compaction(bench: Bench) -> Iterator[Row]:
    """Compact a topic for the first time: from the change of its policy to the cleaner's checkpoint."""

    def run_of(side: Side) -> Run:
        def run() -> Mapping[str, float]:
            with side.broker(_CLEANING) as broker, running(broker):
                where = {"bootstrap_servers": broker.bootstrap_servers, "topic": _TOPIC}
                config = {"segment.bytes": str(_SEGMENT_MIB * _MIB), "min.cleanable.dirty.ratio": "0.01"}
                run_client("create_topic", {**where, "partitions": 1, "config": config})
                run_client("produce", {**where, **_KEYED, "partitions": 1, "total_bytes": bench.mib * _MIB})
                os.sync()
                before = _finished_bytes(broker.data_dir)
                altered = run_client("alter_topic", {**where, "config": {"cleanup.policy": "compact"}})
                _await_cleaning(broker.data_dir, side.name)
                seconds = time.time() - altered["asked_at"]
                return {"rate": before / 1_000_000 / seconds, "kept": _finished_bytes(broker.data_dir) / before}

        return run

    what = f"compaction, 1 KiB records, {_KEYS:,} keys"
    figures = bench.measure(what, {side.name: run_of(side) for side in bench.sides})
    yield bench.row(what, "MB/s", figures, "rate")
    yield bench.row("of that, kept", "share", figures, "kept")


_KEYED: Final = {"record_bytes": 1024, "batch_bytes": 16_384, "keys": _KEYS}


def _finished_bytes(data_dir: Path) -> int:
    """Return the bytes of the topic's segments without the active one, which is never cleaned."""
    segments = sorted((data_dir / f"{_TOPIC}-0").glob("*.log"))
    return sum(segment.stat().st_size for segment in segments[:-1])


def _await_cleaning(data_dir: Path, name: str) -> None:
    """Wait until the cleaner's checkpoint has the topic. Raises `UnavailableError` if it takes too long."""
    until = time.perf_counter() + _CLEANED_WITHIN_S
    path = data_dir / _CLEANER_CHECKPOINT
    while not (path.exists() and f"{_TOPIC} 0 " in path.read_text()):
        if time.perf_counter() > until:
            raise UnavailableError(f"{name} has not compacted anything in {_CLEANED_WITHIN_S:.0f} seconds")
        time.sleep(_POLL_S)
