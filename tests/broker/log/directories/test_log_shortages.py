"""A lack of descriptors, memory or threads, and errors that nobody expects: a log goes on after them, or it stops."""

import errno
from collections.abc import Callable

import pytest

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.segments.segment import Segment
from odradek.model import StorageError
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.scene import NOW, new_log, new_manager, numbered, offsets, opened

SHORTAGES = [MemoryError(), OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOMEM, "no memory")]


def append(log: Log, *, size: int = 50) -> int:
    """Append what continues the producer's last batch; its offset."""
    info = log.append_as_leader(numbered(log.log_end_offset, size=size), leader_epoch=0, now_ms=NOW)
    assert not info.duplicate
    return info.first_offset


def recovered(disk: MemoryDisk) -> list[int]:
    disk.kill()
    return offsets(new_log(disk))


def test_a_roll_without_a_descriptor_is_tried_again_until_there_is_one() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    append(log)
    log.write()
    log.segments.close()
    disk.most_open_files = 0
    for _ in range(3):
        with pytest.raises(LogStorageError, match="Too many open files") as caught:
            append(log)
            append(log)
            log.write()
        assert caught.value.is_passing
        assert log.failure is None
        assert (log.written_offset, log.log_end_offset, log.writer.pending.size) == (1, 1, 0)
        log.delete_old_segments(NOW)
        log.roll_for_compaction(NOW)
        assert log.writer.begin_flush() is None
    disk.most_open_files = None
    assert offsets(log) == [0]
    assert append(log) == 1, "the producer is where it was"
    append(log)
    log.write()
    assert offsets(log) == [0, 1, 2]
    assert recovered(disk) == [0, 1, 2]


def test_unused_open_files_are_closed_for_a_roll() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for _ in range(3):
        append(log)
        log.write()
    assert offsets(log) == [0, 1, 2]
    disk.most_open_files = disk.open_files
    with pytest.raises(LogStorageError):
        append(log)
        append(log)
        log.write()
    append(log)
    log.write()
    assert offsets(log) == [0, 1, 2, 3]
    assert disk.open_files <= disk.most_open_files


@pytest.mark.parametrize("when", ["write", "finish"])
@pytest.mark.parametrize("error", SHORTAGES, ids=repr)
def test_a_write_without_resources_leaves_no_batch(error: Exception, when: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    log.write()
    append(log)
    job = log.writer.begin_write()
    append(log)
    disk.fail_next("append", error, path_end=".log")
    job.run()
    if when == "finish":
        disk.fail_next("truncate", error, path_end=".log")
    with pytest.raises(LogStorageError) as caught:
        log.writer.finish_write(job)
    assert caught.value.is_passing
    assert (log.written_offset, log.log_end_offset, log.writer.pending.size) == (1, 1, 0)
    assert append(log) == 1
    log.write()
    assert recovered(disk) == [0, 1]


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, KeyError])
def test_a_write_that_meets_an_unexpected_error_stops_the_log(kind: type[Exception]) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    log.write()
    disk.fail_next("append", kind("what is this"), path_end=".log")
    append(log)
    with pytest.raises(LogStorageError, match="what is this"):
        log.write()
    assert log.failure is not None
    assert (log.written_offset, log.log_end_offset, log.writer.pending.size) == (1, 1, 0)
    assert recovered(disk) == [0]


def test_a_write_that_was_never_run_is_lost_and_the_log_goes_on() -> None:
    """The thread that it was for could not be started."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    job = log.writer.begin_write()
    with pytest.raises(LogStorageError):
        log.writer.finish_write(job)
    assert log.failure is None
    assert append(log) == 0
    log.write()
    assert recovered(disk) == [0]


def failing_once(error: Exception, original: Callable[..., object]) -> Callable[..., object]:
    errors = [error]

    def fail(*args: object, **kwargs: object) -> object:
        if errors:
            raise errors.pop()
        return original(*args, **kwargs)

    return fail


@pytest.mark.parametrize("is_writing", [False, True])
def test_an_append_that_fails_halfway_loses_pending_batches_with_an_error(
    monkeypatch: pytest.MonkeyPatch, is_writing: bool
) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    job = log.writer.begin_write() if is_writing else None
    append(log)
    monkeypatch.setattr(Segment, "add", failing_once(MemoryError(), Segment.add))
    with pytest.raises(LogStorageError) as caught:
        append(log)
    assert caught.value.is_passing
    with pytest.raises(LogStorageError):
        append(log)
    if job is not None:
        job.run()
        log.writer.finish_write(job)
    with pytest.raises(LogStorageError):
        log.writer.begin_write()
    kept = [0] if is_writing else []
    assert offsets(log) == kept
    assert append(log) == len(kept)
    log.write()
    assert recovered(disk) == [*kept, len(kept)]


def test_an_append_that_fails_halfway_by_an_unexpected_error_stops_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    log.write()
    append(log)
    monkeypatch.setattr(Segment, "add", failing_once(KeyError("oh"), Segment.add))
    with pytest.raises(LogStorageError):
        append(log)
    assert log.failure is not None
    with pytest.raises(LogStorageError):
        log.writer.begin_write()
    log.close()
    assert recovered(disk) == [0]


def test_a_flush_that_was_not_run_syncs_nothing() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    log.write()
    job = log.writer.begin_flush(include_active=True)
    log.writer.finish_flush(job)
    assert log.writer.synced_offset == 0
    assert log.failure is None
    log.flush()
    assert log.writer.synced_offset == 1
    disk.cut_power(Survival.LOSE)
    assert offsets(new_log(disk)) == [0]


def test_a_flush_without_a_descriptor_is_tried_again() -> None:
    """No sync has failed: the file could not be opened for it."""
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for _ in range(3):
        append(log)
    log.write()
    job = log.writer.begin_flush()
    disk.most_open_files = 0
    job.run()
    log.writer.finish_flush(job)
    assert log.failure is None
    assert log.writer.recovery_point == 0
    disk.most_open_files = None
    log.flush()
    disk.cut_power(Survival.LOSE)
    assert offsets(new_log(disk)) == [0, 1, 2]


def test_a_group_flush_without_a_descriptor_for_directories_leaves_no_batch() -> None:
    disk = MemoryDisk()
    log = new_log(disk, flush_group=True)
    append(log)
    job = log.writer.begin_write()
    disk.most_open_files = 0
    job.run()
    with pytest.raises(LogStorageError) as caught:
        log.writer.finish_write(job)
    assert caught.value.is_passing
    disk.most_open_files = None
    append(log)
    log.write()
    disk.cut_power(Survival.LOSE)
    assert offsets(new_log(disk)) == [0]


def test_retention_without_a_descriptor_leaves_snapshots_for_later() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200, retention_ms=1000)
    for _ in range(4):
        append(log)
    log.write()
    disk.most_open_files = 0
    assert log.delete_old_segments(NOW + 9999) == 3, "the last one stays, as no other can be begun"
    assert log.failure is None
    disk.most_open_files = None
    assert log.delete_old_segments(NOW + 9999) == 1
    assert [name for name in disk.list("/data/t-0") if name.endswith(".snapshot")] == [f"{4:020}.snapshot"]


def test_a_start_without_descriptors_fails_and_takes_no_directory_offline() -> None:
    """With its logs offline, the others would be led by brokers that lack what it has."""
    disk = MemoryDisk()
    opened(disk, "/a", "/b")
    disk.kill()
    disk.most_open_files = 2
    again = new_manager(disk, "/a", "/b")
    with pytest.raises(StorageError, match=r"/a cannot be read: .*Too many open files.* \(raise ulimit -n\)"):
        again.open(NOW)
    assert not again.directories.offline


def test_a_truncation_without_a_descriptor_can_be_repeated() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for _ in range(5):
        append(log)
        log.write()
    log.segments.close()
    disk.most_open_files = 0
    with pytest.raises(LogStorageError) as caught:
        log.truncate_to(2)
    assert caught.value.is_passing
    assert log.failure is None
    disk.most_open_files = None
    log.truncate_to(2)
    assert offsets(log) == [0, 1]
    assert append(log) == 2
    log.write()
    assert recovered(disk) == [0, 1, 2]
