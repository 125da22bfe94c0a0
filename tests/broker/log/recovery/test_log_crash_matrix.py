"""A crash at any single change that a scripted life of two logs makes to its disks, and what the next start finds.

Row M1 and SPEC 12: nothing acknowledged under its durability mode is lost, and nothing else is served.
A run tries a fourth of the changes, and `ODRADEK_SEEDS=5` all of them, with five states that a power cut may leave.
"""

import random
import uuid
from dataclasses import dataclass, field
from functools import partial

import pytest
from msgspec.structs import replace

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.inspection.findings import Finding
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.replication.alter_log_dirs import advance
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival
from tests.broker.log.crash_matrix import check_crashes, crash, crashed, noted, whole
from tests.broker.log.scene import contents, maintain, new_manager, verify
from tests.world.sampling import crash_points, seeds

pytestmark = pytest.mark.long

START_MS = 1_800_000_000_000
DIRECTORIES = ("/data", "/other")
KEPT, DELETED = TopicPartition("kept", 0), TopicPartition("deleted", 1)
TOPIC_ID = uuid.UUID(int=5)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=400, retention_bytes=5000, file_delete_delay_ms=10)


def batch(number: int) -> bytearray:
    """The batch with that sequence number; its time is its number."""
    records = [(START_MS + number, b"k", b"%4d" % number * 60, ())]
    return encode_batch(records, producer_id=3, producer_epoch=0, base_sequence=number)


@dataclass
class Promise:
    """The records that one log may have, and those that it must have."""

    allowed: dict[int, set[bytes]] = field(default_factory=dict)
    written: int = 0
    synced: int = 0
    deleted: int = 0
    """Up to here, as DeleteRecords was told; what `gone` says is in the checkpoint."""
    gone: int = 0
    may_be_gone: bool = False

    def cut(self, offset: int) -> None:
        self.written, self.synced = min(self.written, offset), min(self.synced, offset)
        self.gone = min(self.gone, offset)


class Life:
    """The script. It goes on until the power is cut."""

    def __init__(self, disk: MemoryDisk, config: LogConfig) -> None:
        self.disk = disk
        self.config = config
        self.now_ms = START_MS
        self.promises = {KEPT: Promise(), DELETED: Promise()}

    def run(self) -> None:
        manager = self.manager()
        for partition in (KEPT, DELETED):
            self.promises[partition].may_be_gone = True
            manager.get_or_create(partition, topic_id=TOPIC_ID, now_ms=self.now_ms)
        self.append(manager, KEPT, 6, leader_epoch=0)
        self.append(manager, DELETED, 9, leader_epoch=0)
        self.flush(manager, DELETED)
        self.maintain(manager)
        self.append(manager, KEPT, 7, leader_epoch=1)
        self.flush(manager, KEPT)
        self.truncate(manager, KEPT, 9)
        self.append(manager, KEPT, 9, leader_epoch=2)
        self.move(manager, KEPT, "/other", leader_epoch=2)
        self.maintain(manager)
        self.promises[DELETED] = Promise(may_be_gone=True, allowed=self.promises[DELETED].allowed)
        manager.delete(DELETED, self.now_ms)
        manager.deleted.sync()
        self.promises[DELETED].allowed = {}
        manager.get_or_create(DELETED, topic_id=uuid.UUID(int=6), now_ms=self.now_ms)
        self.append(manager, DELETED, 8, leader_epoch=0)
        self.append(manager, KEPT, 9, leader_epoch=2)
        self.maintain(manager)
        self.delete_records(manager, DELETED, 5)
        self.append(manager, DELETED, 1, leader_epoch=0)
        self.delete_records(manager, KEPT, manager.logs[KEPT].log_end_offset - 2)
        self.maintain(manager)
        self.move(manager, KEPT, "/data", leader_epoch=2)
        manager.alter_directory(DELETED, "/other", self.now_ms)
        self.copy(manager, DELETED, pieces=2)
        manager.close()
        for promise in self.promises.values():
            promise.synced, promise.may_be_gone = promise.written, False
        manager = self.manager()
        self.complete(manager, DELETED)
        self.append(manager, KEPT, 5, leader_epoch=3)
        self.append(manager, DELETED, 4, leader_epoch=1)
        self.delete_records(manager, DELETED, 8)
        self.truncate(manager, DELETED, 6)
        self.append(manager, DELETED, 3, leader_epoch=2)
        self.maintain(manager)
        manager.kill()

    def manager(self) -> LogManager:
        entropy = random.Random(self.disk.operations)  # else two directories could get the same id
        manager = new_manager(self.disk, *DIRECTORIES, config=self.config, max_open_files=4, entropy=entropy)
        manager.open(self.now_ms)
        return manager

    def append(self, manager: LogManager, partition: TopicPartition, count: int, *, leader_epoch: int) -> None:
        """Append and write a few at a time; written means acknowledged."""
        log, promise = manager.logs[partition], self.promises[partition]
        for number in range(count):
            data = batch(log.log_end_offset)
            info = log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=self.now_ms)
            promise.allowed.setdefault(info.first_offset, set()).add(bytes(data))
            if number % 3 == 2 or number == count - 1:
                log.write()
                promise.written = log.written_offset
                if self.config.flush_group or log.writer.synced_offset == log.written_offset:
                    promise.synced, promise.may_be_gone = promise.written, False
                else:
                    assert log.written_offset - log.writer.synced_offset < self.config.flush_messages

    def move(self, manager: LogManager, partition: TopicPartition, directory: str, *, leader_epoch: int) -> None:
        """Move a log that is truncated and appended to meanwhile, also before the start of its copy."""
        manager.alter_directory(partition, directory, self.now_ms)
        self.copy(manager, partition, pieces=2)
        log = manager.logs[partition]
        self.truncate(manager, partition, max(log.log_start_offset, log.log_end_offset - 8))
        self.append(manager, partition, 4, leader_epoch=leader_epoch)
        self.copy(manager, partition, pieces=3)
        self.truncate(manager, partition, log.log_end_offset - 1)
        self.append(manager, partition, 2, leader_epoch=leader_epoch)
        self.complete(manager, partition)

    def copy(self, manager: LogManager, partition: TopicPartition, *, pieces: int = 100) -> None:
        future = manager.futures[partition]
        for _ in range(pieces):
            if advance(future, self.now_ms, 700) is None:
                break
            future.log.write()

    def complete(self, manager: LogManager, partition: TopicPartition) -> None:
        """Swap a log and its copy; from then on all of the log is synced."""
        self.copy(manager, partition)
        manager.swap(partition, self.now_ms)
        promise = self.promises[partition]
        promise.synced, promise.may_be_gone = promise.written, False

    def flush(self, manager: LogManager, partition: TopicPartition) -> None:
        log, promise = manager.logs[partition], self.promises[partition]
        log.flush()
        manager.checkpoints.write_all()
        promise.synced, promise.may_be_gone = promise.written, False

    def delete_records(self, manager: LogManager, partition: TopicPartition, offset: int) -> None:
        """It lasts once a checkpoint has it; until then the records may come back, as in Kafka."""
        promise = self.promises[partition]
        promise.deleted = offset
        manager.logs[partition].advance_log_start_offset(offset)
        manager.checkpoints.write_all()
        promise.gone = offset

    def maintain(self, manager: LogManager) -> None:
        self.now_ms += 20
        maintain(manager, self.now_ms)
        for partition, log in manager.logs.items():
            self.promises[partition].synced = max(self.promises[partition].synced, log.writer.synced_offset)

    def truncate(self, manager: LogManager, partition: TopicPartition, offset: int) -> None:
        promise = self.promises[partition]
        promise.cut(offset)
        manager.truncate_to(partition, offset)
        promise.deleted = min(promise.deleted, offset)
        for gone in [at for at in promise.allowed if at >= offset]:
            del promise.allowed[gone]


def damages(disk: MemoryDisk) -> list[Finding]:
    """Return the damage that `odradek log verify` finds; a topic's id is written again when it is known."""
    found = [each for path in DIRECTORIES for each in verify(disk, path, records=True, is_data=True)]
    return [each for each in found if each.is_damage and "topic id" not in each.reason]


def check(life: Life, *, is_synced_only: bool) -> None:
    """Start again, compare with what was promised, go on, and start once more."""
    manager = life.manager()
    assert not damages(life.disk), "the verification shares no code with recovery"
    for partition, promise in life.promises.items():
        log = manager.get(partition)
        folders = [path for path in DIRECTORIES if str(partition) in life.disk.list(path)]
        assert len(folders) == (log is not None), "there is one replica"
        assert not [name for path in DIRECTORIES for name in life.disk.list(path) if name.endswith("-moved")]
        if partition in manager.futures:
            life.copy(manager, partition)
            manager.swap(partition, life.now_ms)
        if log is None:
            assert promise.may_be_gone or not promise.written
            continue
        found = contents(log)
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset)), "there is no hole"
        for offset, data in found.items():
            assert data in promise.allowed.get(offset, set()), f"{partition} serves something else at {offset}"
        floor = promise.synced if is_synced_only else promise.written
        if not (promise.may_be_gone and is_synced_only):
            assert log.log_end_offset >= floor, f"{partition} lost {log.log_end_offset} to {floor}"
        assert promise.gone <= log.log_start_offset <= max(0, floor - 3, promise.deleted)
        end = log.log_end_offset
        if found:
            assert log.append_as_leader(batch(end - 1), leader_epoch=5, now_ms=life.now_ms).duplicate
            last = read_header(found[end - 1])
            assert log.epochs.epoch_at(end - 1) == last.partition_leader_epoch
        assert log.append_as_leader(batch(end), leader_epoch=5, now_ms=life.now_ms).first_offset == end
        log.write()
        found[end] = contents(log)[end]
        assert contents(log) == found
        maintain(manager, life.now_ms + 40)
    before = {partition: contents(log) for partition, log in manager.logs.items()}
    manager.close()
    assert not damages(life.disk)
    manager = life.manager()
    assert {partition: contents(log) for partition, log in manager.logs.items()} == before
    manager.kill()


def operations_of(config: LogConfig) -> int:
    life = whole(partial(Life, config=config))
    operations = life.disk.operations
    log = Log.open(life.disk, "/data/kept-0", config, now_ms=life.now_ms)  # it has moved away, and back
    assert log.first_base_offset > 0, "retention is a part of the script"
    return operations


CASES = {
    "killed": (CONFIG, None),
    "power cut, everything unsynced lost": (CONFIG, Survival.LOSE),
    "power cut, anything may happen": (CONFIG, Survival.ANY),
    "power cut with group flush": (replace(CONFIG, flush_group=True), Survival.ANY),
    "power cut with a flush every four messages": (replace(CONFIG, flush_messages=4), Survival.ANY),
}


@pytest.mark.parametrize("case", ["killed", "power cut, anything may happen"])
def test_a_second_crash_at_any_change_of_the_recovery_loses_nothing_either(case: str, seed: int) -> None:
    """A few first crashes (they are many), and then one at every change that its recovery makes."""
    config, survival = CASES[case]
    second_crashes = 0
    for operation in crash_points(operations_of(config), seed)[::9]:
        for second in range(1, 1000):
            life = crashed(partial(Life, config=config), survival, operation)
            life.disk.cut_power_at(life.disk.operations + second)
            try:
                life.manager()
            except PowerCutError:
                second_crashes += 1
                crash(life.disk, survival)
            else:
                break
            with noted(f"crash at operation {operation}, then at {second} of its recovery"):
                check(life, is_synced_only=survival is not None)
    assert second_crashes > 30


@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_change_loses_nothing_that_was_promised(case: str, seed: int) -> None:
    config, survival = CASES[case]
    states = seeds(1) if survival is Survival.ANY else range(1)
    points = crash_points(operations_of(config), seed)
    check_crashes(
        partial(Life, config=config), survival, partial(check, is_synced_only=survival is not None), points, states
    )
