"""The comparison of a running log with its batches names what was tampered with."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.broker.log.checkpoints.leader_epoch_cache import EpochStart
from odradek.broker.log.inspection.running_log import deviations
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import end_transaction

NOW_MS = 1_800_000_000_000


def log_with_transactions() -> Log:
    """Return a log with an aborted transaction in each of several segments, and an open one."""
    disk = MemoryDisk(random.Random(1))
    disk.make_directories("/data")
    log = Log.open(disk, "/data/t-0", LogConfig(segment_bytes=400, index_interval_bytes=0), now_ms=NOW_MS)
    for sequence in range(6):
        batch = encode_batch(
            [(NOW_MS, None, b"v", ())],
            producer_id=4,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        log.append_as_leader(bytearray(batch), leader_epoch=sequence, now_ms=NOW_MS, transactional=True)
        if sequence < 5:
            end_transaction(log, 4, ControlType.ABORT, now_ms=NOW_MS, leader_epoch=sequence)
    log.flush()
    assert len(log.segments) > 1
    return log


def keep_an_aborted_transaction(log: Log) -> None:
    (aborted, *_) = log.aborted_transactions(0, 2)
    log.segments.active.add_aborted(aborted._replace(last_offset=log.log_end_offset, first_offset=log.log_end_offset))


def lose_a_producer(log: Log) -> None:
    log.producers.entries.clear()


def lose_a_batch(log: Log) -> None:
    entry = log.producers.entries[4]
    entry.batches = (*entry.batches[:-2], replace(entry.batches[-1], first_sequence=77))


def end_an_open_transaction(log: Log) -> None:
    log.producers.entries[4].transaction_start = -1


def begin_an_epoch_late(log: Log) -> None:
    log.epochs.entries[2] = EpochStart(2, log.epochs.entries[2].start_offset + 1)


def index_a_wrong_position(log: Log) -> None:
    entries: Any = log.segments.active.offset_index.entries
    entries.append((99, 1_000_000))


def leave_a_snapshot(log: Log) -> None:
    log.pool.disk.replace_file("/data/t-0/00000000000000000099.snapshot", b"")


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (keep_an_aborted_transaction, "where no marker aborts it"),
        (lose_a_producer, "lacks producer 4"),
        (lose_a_batch, "of producer 4, and its batches give"),
        (end_an_open_transaction, "has producer 4 with"),
        (begin_an_epoch_late, "is of leader epoch 1, and its batch is of 2"),
        (index_a_wrong_position, "points beyond the segment"),
        (leave_a_snapshot, "has a snapshot at 99, beyond its end"),
    ],
)
def test_state_that_the_batches_do_not_give_is_named(tamper: Callable[[Log], None], reason: str) -> None:
    log = log_with_transactions()
    assert not list(deviations(log))
    tamper(log)
    assert any(reason in each for each in deviations(log)), list(deviations(log))
