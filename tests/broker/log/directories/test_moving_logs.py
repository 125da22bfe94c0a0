"""Logs that move to another data directory (KIP-113): swaps that fail, truncations, and what the next start finds."""

import errno
import os
import random
from contextlib import suppress
from typing import Any

import pytest

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log_config import LogConfig
from odradek.broker.replication.alter_log_dirs import advance
from odradek.model import StorageError, TopicPartition
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.scene import NOW, batch, contents, maintain, new_manager, offsets, write_batches

T0 = TopicPartition("t", 0)
SOURCE, TARGET = "/a", "/b"


class FailingDisk(MemoryDisk):
    """A disk of which the changes with the numbers `failing` fail."""

    failing = range(0)

    def _is_due(self, kind: str, path: str) -> bool:
        is_due = super()._is_due(kind, path)
        if self.operations in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return is_due


def started(disk: MemoryDisk, **options: Any) -> LogManager:
    manager = new_manager(disk, SOURCE, TARGET, entropy=random.Random(disk.operations), **options)
    manager.open(NOW)
    return manager


def copied(disk: MemoryDisk, **options: Any) -> LogManager:
    """Return a manager with a synced log of ten batches, and its complete copy."""
    manager = started(disk, **options)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    write_batches(log, 10)
    log.flush()
    manager.alter_directory(T0, TARGET, NOW)
    copy(manager)
    return manager


def copy(manager: LogManager) -> None:
    for _ in range(100):
        if advance(manager.futures[T0], NOW) is None:
            return
        manager.futures[T0].log.write()
    raise AssertionError("the copy is never complete")


@pytest.mark.parametrize("survival", [None, Survival.LOSE, Survival.ANY], ids=["kill", "lose", "any"])
@pytest.mark.parametrize("errors", [1, 2, 3, 4, 100])
def test_an_error_in_a_swap_loses_nothing(errors: int, survival: Survival | None) -> None:
    """Wherever a disk fails, and whether the renames can be undone or not, one log with all records is left."""
    disk = FailingDisk()
    manager = copied(disk)
    before = disk.operations
    manager.swap(T0, NOW)
    for number in range(1, disk.operations - before + 1):
        disk = FailingDisk(random.Random(number))
        manager = copied(disk)
        first = disk.operations + number
        disk.failing = range(first, first + errors)
        with suppress(OSError, StorageError):
            manager.swap(T0, NOW)
        disk.failing = range(0)
        manager.futures.drop(T0, NOW)
        log, expected = manager.logs[T0], list(range(10))
        with suppress(LogStorageError):
            write_batches(log)
            log.flush()
            expected = list(range(log.writer.synced_offset))
        disk.kill() if survival is None else disk.cut_power(survival)
        manager = started(disk)
        assert T0 in manager.logs, (number, manager.statuses.offline)
        assert offsets(manager.logs[T0]) == expected, number
        assert sum(str(T0) in disk.list(path) for path in (SOURCE, TARGET)) == 1


@pytest.mark.parametrize("path_end", [TARGET, "/b/replication-offset-checkpoint.tmp"])
def test_an_error_in_a_swap_takes_the_failed_directory_offline(path_end: str) -> None:
    disk = MemoryDisk()
    manager = copied(disk)
    disk.fail_next("sync", errno.EIO, path_end=path_end)
    with pytest.raises(LogStorageError):
        manager.swap(T0, NOW)
    assert list(manager.directories.offline) == [TARGET]
    write_batches(manager.logs[T0])


def test_a_log_with_appends_that_are_not_written_does_not_move() -> None:
    manager = copied(MemoryDisk())
    log = manager.logs[T0]
    log.append_as_leader(batch(NOW), leader_epoch=0, now_ms=NOW)
    with pytest.raises(LogStorageError, match="not everything is written"):
        manager.swap(T0, NOW)
    log.write()
    copy(manager)
    manager.swap(T0, NOW)
    assert log.directory == f"{TARGET}/{T0}"
    assert offsets(log) == list(range(11))


@pytest.mark.parametrize("is_full", [False, True], ids=["truncated", "truncated fully"])
def test_a_copy_follows_a_truncation_that_ends_with_an_error(is_full: bool) -> None:
    disk = MemoryDisk()
    manager = copied(disk)
    log = manager.logs[T0]
    log_file = f"{SOURCE}/{T0}/{0:020d}.log"
    disk.fail_next("sync", errno.EMFILE, path_end=f"{SOURCE}/{T0}" if is_full else log_file)
    with pytest.raises(LogStorageError):
        if is_full:
            manager.truncate_fully_and_start_at(T0, 0, NOW)
        else:
            manager.truncate_to(T0, 5)
    while log.log_end_offset < 12:
        log.append_as_leader(batch(NOW, size=60), leader_epoch=1, now_ms=NOW)
    log.write()
    expected = contents(log)
    copy(manager)
    manager.swap(T0, NOW)
    assert contents(log) == expected


def test_a_move_ends_when_the_log_becomes_a_stray() -> None:
    manager = copied(MemoryDisk())
    manager.rename_to_stray(T0, "damaged")
    assert not manager.futures


def test_a_start_begins_one_copy_and_removes_all_former_ones() -> None:
    disk = MemoryDisk()
    copied(disk)
    disk.make_directories(f"{TARGET}/{T0}.{'0' * 32}-future")
    disk.kill()
    manager = started(disk)
    assert [name for name in disk.list(TARGET) if name.startswith(str(T0))] == [
        manager.futures[T0].log.directory.rpartition("/")[2]
    ]


def test_a_copy_has_the_configuration_of_its_log() -> None:
    configs = [LogConfig()]
    manager = copied(MemoryDisk(), config_for=lambda topic: configs[-1])
    configs.append(LogConfig(segment_bytes=1000))
    manager.update_config(T0)
    assert manager.logs[T0].config is manager.futures[T0].log.config is configs[-1]


def test_a_former_folder_that_cannot_be_deleted_is_deleted_later() -> None:
    disk = MemoryDisk()
    manager = copied(disk)
    disk.fail_next("rename", errno.ENOSPC, path_end="-moved", count=2)
    manager.swap(T0, NOW)
    assert [name for name in disk.list(SOURCE) if name.endswith("-moved")]
    with pytest.raises(LogStorageError, match="cannot be deleted"):
        manager.alter_directory(T0, SOURCE, NOW)
    maintain(manager, NOW)
    assert not [name for name in disk.list(SOURCE) if name.startswith(str(T0))]
    manager.alter_directory(T0, SOURCE, NOW)


@pytest.mark.parametrize("token", ["0" * 32, "f" * 32])
def test_a_start_does_not_restore_the_folder_of_an_earlier_move(token: str) -> None:
    disk = MemoryDisk()
    manager = copied(disk)
    folder = manager.futures[T0].log.directory
    manager.futures[T0].log.flush()
    records = disk.read_file(f"{SOURCE}/{T0}/{0:020d}.log")
    disk.make_directories(f"{SOURCE}/{T0}.{token}-moved")
    disk.replace_file(f"{SOURCE}/{T0}.{token}-moved/{0:020d}.log", records)
    disk.rename(f"{SOURCE}/{T0}", f"{SOURCE}/{folder.rpartition('/')[2].replace('-future', '-moved')}")
    disk.kill()
    manager = started(disk)
    assert manager.logs[T0].directory == f"{TARGET}/{T0}"
    assert offsets(manager.logs[T0]) == list(range(10))
    assert not [name for name in disk.list(SOURCE) if name.endswith("-moved")]
