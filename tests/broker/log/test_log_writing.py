"""Writing and syncing off the loop, and what a log does when the disk fails. Row M1, SPEC 12."""

import errno
from collections.abc import Callable

import pytest

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.model import ErrorCode, KafkaError, StorageError
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.scene import NOW, batch, new_log, numbered, offsets


def append(log: Log, *, size: int = 50, sequence: int = -1, leader_epoch: int = 0) -> int:
    data = batch(NOW, size=size) if sequence < 0 else numbered(sequence, size=size)
    return log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=NOW).first_offset


def test_appends_go_on_while_a_job_writes() -> None:
    log = new_log(MemoryDisk())
    append(log)
    job = log.writer.begin_write()
    append(log)
    assert log.writer.begin_write() is None, "one at a time"
    job.run()
    assert log.written_offset == 0, "until the job is given back"
    log.writer.finish_write(job)
    assert (log.written_offset, log.log_end_offset) == (1, 2)
    assert offsets(log) == [0]
    log.write()
    assert offsets(log) == [0, 1]
    assert log.writer.begin_write() is None, "nothing is pending"


def test_large_writes_and_synced_ones_are_for_a_thread() -> None:
    log = new_log(MemoryDisk())
    append(log, size=60_000)
    job = log.writer.begin_write()
    assert not job.prefers_thread
    append(log, size=60_000)
    append(log, size=10_000)
    job.run()
    log.writer.finish_write(job)
    job = log.writer.begin_write()
    assert job.prefers_thread
    assert job.size > 65_536
    log = new_log(MemoryDisk(), flush_messages=2)
    append(log)
    log.write()
    assert log.writer.recovery_point == 0
    append(log)
    job = log.writer.begin_write()
    assert job.prefers_thread, "every second message is synced"


def test_with_group_flush_what_is_written_is_on_the_disk() -> None:
    disk = MemoryDisk()
    log = new_log(disk, flush_group=True, segment_bytes=300)
    for number in range(10):
        append(log, leader_epoch=number // 4)
        log.write()
    assert log.written_offset == 10
    disk.cut_power(Survival.LOSE)
    log = new_log(disk, segment_bytes=300)
    assert offsets(log) == list(range(10))
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]


def test_a_full_disk_refuses_appends_and_serves_reads_until_there_is_room() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=400)
    for number in range(5):
        append(log, sequence=number)
    log.write()
    disk.capacity_bytes = disk.used_bytes() + 100
    for _ in range(3):
        for number in range(5, 12):
            append(log, sequence=number)
        with pytest.raises(LogStorageError, match="No space left") as caught:
            log.write()
        assert caught.value.code == ErrorCode.kafka_storage_error
        assert isinstance(caught.value, StorageError)
        assert isinstance(caught.value, KafkaError)
        assert (log.log_end_offset, log.written_offset, log.writer.pending.size) == (5, 5, 0)
        assert log.failure is None
        assert offsets(log) == list(range(5))
    disk.capacity_bytes = None
    for number in range(5, 12):
        assert append(log, sequence=number) == number, "the sequence numbers were taken back too"
    log.write()
    assert offsets(log) == list(range(12))
    log.close()
    log = Log.open(disk, "/data/t-0", LogConfig(), now_ms=NOW, clean=True)
    assert offsets(log) == list(range(12))


@pytest.mark.parametrize("room", range(0, 850, 29))
def test_a_failed_write_leaves_no_partial_batch(room: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=300, index_interval_bytes=100)
    for number in range(7):
        append(log, leader_epoch=number // 2)
    log.write()
    disk.capacity_bytes = disk.used_bytes() + room
    for number in range(7, 14):
        append(log, leader_epoch=number // 2)
    with pytest.raises(LogStorageError):
        log.write()
    disk.capacity_bytes = None
    assert offsets(log) == list(range(7))
    assert log.epochs.latest == 3
    append(log, leader_epoch=3)
    log.write()
    disk.kill()
    log = new_log(disk, segment_bytes=300)
    assert offsets(log) == list(range(8))


def test_records_appended_during_a_failed_write_are_lost_with_it() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    job = log.writer.begin_write()
    append(log)
    disk.capacity_bytes = disk.used_bytes()
    job.run()
    with pytest.raises(LogStorageError, match="2 offsets from 0"):
        log.writer.finish_write(job)
    disk.capacity_bytes = None
    assert append(log) == 0


@pytest.mark.parametrize("operation", ["append", "create"])
def test_another_failed_write_stops_the_log(operation: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    append(log)
    log.write()
    disk.fail_next(operation, errno.EIO)
    append(log)
    append(log)
    with pytest.raises(LogStorageError, match="Input/output error"):
        log.write()
    assert log.failure is not None
    with pytest.raises(LogStorageError, match="Input/output error"):
        append(log)
    assert offsets(log) == [0], "what is written can still be read"
    assert log.log_end_offset == 1
    log.close()


def test_a_failed_sync_stops_the_log_and_is_never_tried_again() -> None:
    disk = MemoryDisk()
    log = new_log(disk, flush_group=True)
    append(log)
    log.write()
    disk.fail_next("sync", errno.EIO, path_end=".log")
    append(log)
    with pytest.raises(LogStorageError, match="Input/output error"):
        log.write()
    syncs = disk.operations
    assert log.written_offset == 1
    assert log.writer.begin_flush(include_active=True) is None
    with pytest.raises(LogStorageError):
        append(log)
    log.close()
    assert disk.operations == syncs
    disk.cut_power(Survival.LOSE)
    assert offsets(new_log(disk)) == [0]


def test_a_failed_sync_in_the_background_stops_the_log() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for _ in range(5):
        append(log)
    log.write()
    job = log.writer.begin_flush()
    disk.fail_next("sync", errno.ENOSPC, path_end=".log")
    job.run()
    with pytest.raises(LogStorageError, match="Failed to sync"):
        log.writer.finish_flush(job)
    assert log.failure is not None
    assert log.writer.recovery_point == 0


def test_a_flush_moves_the_recovery_point_over_finished_segments() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for number in range(5):
        append(log, leader_epoch=number)
        log.write()
    assert log.writer.recovery_point == 0
    job = log.writer.begin_flush()
    assert log.writer.begin_flush() is None, "one at a time"
    append(log, leader_epoch=4)
    log.write()
    job.run()
    log.writer.finish_flush(job)
    assert log.writer.recovery_point == log.segments.bases[-2] == job.recovery_point == job.synced_offset
    disk.cut_power(Survival.LOSE)
    recovered = Log.open(disk, "/data/t-0", LogConfig(), now_ms=NOW, recovery_point=log.writer.recovery_point)
    assert offsets(recovered)[: log.writer.recovery_point] == list(range(log.writer.recovery_point))
    assert recovered.epochs.entries[:2] == [(0, 0), (1, 1)]


def test_flush_syncs_everything_that_was_appended() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for _ in range(5):
        append(log)
    log.flush()
    assert log.writer.synced_offset == 5
    disk.cut_power(Survival.LOSE)
    assert offsets(new_log(disk)) == list(range(5))


def test_a_flush_under_way_does_not_undo_a_truncation() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    for number in range(8):
        append(log, sequence=number, leader_epoch=number // 2)
    log.write()
    job = log.writer.begin_flush()
    assert log.truncate_to(3)
    job.run()
    log.writer.finish_flush(job)
    assert log.writer.recovery_point <= log.writer.synced_offset <= 3
    assert offsets(log) == [0, 1, 2]
    assert log.epochs.entries == [(0, 0), (1, 2)]
    assert append(log, sequence=3, leader_epoch=1) == 3, "the producers are as they were at offset 3"
    log.write()
    assert not log.truncate_to(4)
    assert offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("end", [Log.abandon, lambda log: None])
def test_a_job_that_ends_after_its_log_is_ignored(end: Callable[[Log], object]) -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    append(log)
    log.write()
    append(log)
    append(log)
    job = log.writer.begin_write()
    end(log)
    job.run()
    log.writer.finish_write(job)
    log.abandon()
    assert offsets(new_log(disk)) == [0, 1, 2]


def test_an_index_page_without_room_is_written_later() -> None:
    disk = MemoryDisk()
    log = new_log(disk, index_interval_bytes=0)
    for _ in range(514):
        append(log, size=1)
    job = log.writer.begin_write()
    job.run()
    disk.capacity_bytes = disk.used_bytes()
    log.writer.finish_write(job)
    assert offsets(log) == list(range(514))
    disk.capacity_bytes = None
    append(log)
    log.write()
    log.close()
    log = Log.open(disk, "/data/t-0", LogConfig(), now_ms=NOW, clean=True)
    assert offsets(log) == list(range(515))
    assert disk.size("/data/t-0/00000000000000000000.index") == 514 * 8


def test_a_flush_without_room_is_tried_again_and_the_log_goes_on() -> None:
    """Nothing is damaged when the file of the leader epochs can't be written: only a failed sync stops a log."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, leader_epoch=4)
    log.write()
    disk.capacity_bytes = disk.used_bytes()
    job = log.writer.begin_flush(include_active=True)
    job.run()
    log.writer.finish_flush(job)
    assert log.writer.synced_offset == 0
    disk.capacity_bytes = None
    log.flush()
    assert log.writer.synced_offset == log.log_end_offset == 1
    assert disk.read_file(f"{log.directory}/leader-epoch-checkpoint").endswith(b"4 0\n")


def test_leader_epochs_are_written_again_after_a_full_disk_and_a_truncation() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, leader_epoch=4)
    append(log, leader_epoch=4)
    log.write()
    job = log.writer.begin_flush(include_active=True)
    disk.capacity_bytes = disk.used_bytes()
    job.run()
    log.truncate_to(1)
    log.writer.finish_flush(job)
    disk.capacity_bytes = None
    log.close()
    assert disk.read_file(f"{log.directory}/leader-epoch-checkpoint").endswith(b"4 0\n")


def test_a_failed_sync_stops_a_log_that_was_truncated_meanwhile() -> None:
    """It was of what is kept as well, and no later sync would tell."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log)
    append(log)
    log.write()
    job = log.writer.begin_flush(include_active=True)
    disk.fail_next("sync", errno.EIO, path_end=".log")
    job.run()
    log.truncate_to(1)
    with pytest.raises(LogStorageError):
        log.writer.finish_flush(job)
    assert log.failure is not None


def test_a_segment_without_room_leaves_no_partial_snapshot() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    append(log, size=100)
    log.write()
    append(log, size=100)
    disk.capacity_bytes = disk.used_bytes() + 3
    with pytest.raises(LogStorageError):
        log.write()
    assert not disk.exists(f"{log.directory}/{1:020}.snapshot")
