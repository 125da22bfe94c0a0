"""A crash at every change that a log with transactions makes to the disk, and what the next start knows of them.

Row M1: whatever part of the log is left, the index of aborted transactions, the open ones and the last stable offset
are those of just that part, whichever of them were in memory, half written, or from an earlier life. A run tries a
fourth of the changes, and with `ODRADEK_SEEDS` all of them.
"""

from functools import partial

import pytest

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.model import TopicPartition
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.crash_matrix import check_crashes, whole
from tests.broker.log.scene import contents, end_transaction, maintain, new_manager
from tests.broker.log.transactional_writer import DIRECTORY, NOW_MS, Outcome
from tests.world.sampling import crash_points

pytestmark = pytest.mark.long

PARTITION = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, retention_bytes=1800, file_delete_delay_ms=10)


class Life:
    """The script, until the power is cut. `history` has what every offset may hold; `synced` must outlive the power."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}
        self.history: dict[int, bytes] = {}
        self.gone: dict[int, set[bytes]] = {}
        self.synced = self.written = 0

    def manager(self) -> LogManager:
        manager = new_manager(self.disk, config=CONFIG, max_open_files=4)
        manager.open(self.now_ms)
        return manager

    def run(self) -> None:
        manager = self.manager()
        log = manager.get_or_create(PARTITION, topic_id=None, now_ms=self.now_ms)
        self.rounds(log, 2)
        log.flush()
        manager.checkpoints.write_all()
        self.synced = log.writer.synced_offset
        self.rounds(log, 2)
        cut = self.boundary(log, log.log_end_offset - 5)
        self.synced, self.written = min(self.synced, cut), min(self.written, cut)
        for offset in [each for each in self.history if each >= cut]:
            self.gone.setdefault(offset, set()).add(self.history.pop(offset))
        manager.truncate_to(PARTITION, cut)
        self.sequences = {key: entry.last_sequence + 1 for key, entry in log.producers.entries.items() if entry.batches}
        self.rounds(log, 1)
        self.maintain(manager, log)
        manager.close()
        self.synced = self.written
        manager = self.manager()
        log = manager.logs[PARTITION]
        self.rounds(log, 2)
        self.maintain(manager, log)
        manager.kill()

    def boundary(self, log: Log, offset: int) -> int:
        """Where a batch begins, at or before an offset."""
        return max(each for each in self.history if each <= offset)

    def maintain(self, manager: LogManager, log: Log) -> None:
        self.now_ms += 20
        maintain(manager, self.now_ms)
        self.synced = max(self.synced, log.writer.synced_offset)

    def rounds(self, log: Log, count: int) -> None:
        """Three producers: one aborts, one commits, one goes on to the next round."""
        for number in range(count):
            self.data(log, 1)
            self.data(log, 2)
            self.data(log, 7, transactional=False)
            self.end(log, 1, ControlType.ABORT)
            self.data(log, 3)
            self.write(log)
            self.end(log, 2, ControlType.COMMIT if number % 2 else ControlType.ABORT)
            self.data(log, 1)
            self.write(log)
            if number % 2:
                self.end(log, 3, ControlType.ABORT)
            self.end(log, 1, ControlType.ABORT)
            self.write(log)

    def data(self, log: Log, producer: int, *, transactional: bool = True) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        batch = encode_batch(
            [(NOW_MS, None, b"%d" % sequence * 20, ())],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        offset = log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms, transactional=True).first_offset
        self.history[offset] = bytes(batch)

    def end(self, log: Log, producer: int, type_: ControlType) -> None:
        info = end_transaction(log, producer, type_, now_ms=self.now_ms)
        self.history[info.first_offset] = bytes(log.writer.pending.buffers[-1])

    def write(self, log: Log) -> None:
        log.write()
        self.written = log.written_offset


def check(life: Life, *, is_synced_only: bool) -> None:
    """Start again, twice, and hold what is there against its own batches."""
    manager = life.manager()
    log = manager.get(PARTITION)
    if log is None or not life.history:
        manager.kill()
        return
    assert log.written_offset >= (life.synced if is_synced_only else life.written)
    found = contents(log)
    kept = b"".join(found.values())
    for offset, data in found.items():
        assert data == life.history.get(offset) or data in life.gone.get(offset, ()), offset
    before = b"".join(life.history[offset] for offset in sorted(life.history) if offset < log.first_base_offset)
    Outcome(before + kept).check(log)
    for producer in Outcome(before + kept).open:
        life.end(log, producer, ControlType.ABORT)
    life.write(log)
    Outcome(before + b"".join(contents(log).values())).check(log)
    assert log.first_unstable_offset is None
    known = log.aborted_transactions(log.first_base_offset, log.written_offset)
    manager.close()
    assert [each for each in Verification(life.disk).partition_directory(DIRECTORY) if each.is_damage] == []
    manager = life.manager()
    log = manager.logs[PARTITION]
    assert log.aborted_transactions(log.first_base_offset, log.written_offset) == known
    manager.kill()


CASES = {"killed": None, "power cut, everything unsynced lost": Survival.LOSE, "power cut": Survival.ANY}


@pytest.mark.parametrize("case", CASES)
def test_transactions_survive_a_crash_at_any_change(case: str, seed: int) -> None:
    disk = whole(Life).disk
    names = disk.list(DIRECTORY)
    assert f"{0:020d}.log" not in names, "retention is a part of the script"
    assert sum(name.endswith(".txnindex") for name in names) > 1
    survival = CASES[case]
    points = crash_points(disk.operations, seed)
    check_crashes(Life, survival, partial(check, is_synced_only=survival is not None), points)
