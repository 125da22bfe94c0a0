"""The segments that retention deletes, by time, by size and by the log start offset. Row M1."""

import errno

import pytest

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW

SIZE = len(encode_batch([(NOW, None, b"x" * 50, ())]))


def log_of(count: int, disk: MemoryDisk | None = None, *, step_ms: int = 10, **config: object) -> Log:
    """Two batches a segment; batch n has offset n and the time NOW + n * step_ms."""
    settings = LogConfig(segment_bytes=2 * SIZE, **config)
    log = Log.open(disk or MemoryDisk(), "/data/t-0", settings, now_ms=NOW)
    append(log, count, step_ms=step_ms)
    return log


def append(log: Log, count: int, *, step_ms: int = 10) -> None:
    for _ in range(count):
        number = log.log_end_offset
        time_ms = NOW + number * step_ms if step_ms >= 0 else -1
        data = encode_batch([(time_ms, b"", b"x" * 50, ())], producer_id=8, producer_epoch=0, base_sequence=number)
        log.append_as_leader(data, leader_epoch=number // 3, now_ms=NOW)
    log.write()


def test_segments_are_deleted_when_their_latest_record_is_too_old() -> None:
    log = log_of(7, retention_ms=1000)
    assert log.delete_old_segments(NOW + 1010) == 0, "offset 1 is 1000 ms old, which is not more"
    assert log.delete_old_segments(NOW + 1011) == 1
    assert (log.log_start_offset, log.segments.bases) == (2, [2, 4, 6])
    with pytest.raises(KafkaError) as caught:
        log.read(1, 100)
    assert caught.value.code == ErrorCode.offset_out_of_range
    assert log.epochs.entries == [(0, 2), (1, 3), (2, 6)]


def test_a_late_record_keeps_its_segment_and_those_after_it() -> None:
    log = log_of(0, retention_ms=1000)
    for time_ms in (NOW, NOW + 900, NOW + 1, NOW + 2, NOW + 3):
        log.append_as_leader(encode_batch([(time_ms, None, b"x" * 50, ())]), leader_epoch=0, now_ms=NOW)
    log.write()
    assert log.delete_old_segments(NOW + 1500) == 0
    assert log.delete_old_segments(NOW + 1901) == 3


def test_records_without_time_age_from_their_append() -> None:
    log = log_of(5, step_ms=-1, retention_ms=1000)
    assert log.delete_old_segments(NOW + 1000) == 0
    assert log.delete_old_segments(NOW + 1001) == 3


def test_the_oldest_segments_are_deleted_while_the_log_exceeds_its_size() -> None:
    log = log_of(7, retention_bytes=3 * SIZE, retention_ms=-1)
    assert log.segments.size == 7 * SIZE
    assert log.delete_old_segments(NOW) == 2
    assert (log.log_start_offset, log.segments.size) == (4, 3 * SIZE)
    append(log, 1)
    assert log.delete_old_segments(NOW) == 0, "4 batches, less 2, would be too few"


@pytest.mark.parametrize("operation", ["append .snapshot", "create .snapshot", "create .log", "truncate .log"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("is_killed", [False, True])
def test_without_room_for_another_segment_the_last_one_is_kept(operation: str, number: int, is_killed: bool) -> None:
    """Retention has to free space on a full disk although it cannot roll a segment."""
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=1000)
    kind, _, end = operation.partition(" ")
    # The pool tries once more, after it has given descriptors back.
    count = 2 if (operation, number) == ("create .log", errno.EMFILE) else 1
    disk.fail_next(kind, number, path_end=f"00007{end}", count=count)
    assert log.delete_old_segments(NOW + 9999) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (6, 7, [6])
    assert log.failure is None
    disk.fail_next(kind, number, path_end=f"00007{end}", count=count)
    assert log.delete_old_segments(NOW + 9999) == 0
    if is_killed:
        log.abandon()
        log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW)
    append(log, 4)
    found = [next(iterate_batches(log.read(offset, 10_000)))[1].base_offset for offset in range(6, 11)]
    assert found == [6, 7, 8, 9, 10]
    assert log.delete_old_segments(NOW + 9999) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (11, 11, [11])


def test_a_log_without_records_keeps_its_end_offset_and_producers() -> None:
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=1000)
    assert log.delete_old_segments(NOW + 9999) == 4
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (7, 7, [7])
    assert log.delete_old_segments(NOW + 9999) == 0, "an empty segment stays"
    log.abandon()
    log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    append(log, 2)
    assert log.log_end_offset == 9, "sequence 7 was due"


def test_the_end_of_the_log_outlives_a_crash_while_its_newest_segment_is_not_written() -> None:
    disk = MemoryDisk()
    log = log_of(6, disk, retention_ms=1000)
    log.append_as_leader(encode_batch([(NOW, None, b"x" * 50, ())]), leader_epoch=9, now_ms=NOW)
    assert log.segments.bases == [0, 2, 4, 6]
    assert log.delete_old_segments(NOW + 9999) == 2, "the one at 4 keeps the log's end until the one at 6 is written"
    disk.kill()
    assert Log.open(disk, "/data/t-0", log.config, now_ms=NOW).log_end_offset == 6


def test_uncommitted_and_unwritten_records_are_kept() -> None:
    log = log_of(7, retention_ms=1000)
    assert log.delete_old_segments(NOW + 9999, high_watermark=5) == 2
    log.append_as_leader(encode_batch([(NOW, None, b"x" * 50, ())]), leader_epoch=9, now_ms=NOW)
    assert log.delete_old_segments(NOW + 9999) == 1
    assert log.log_start_offset == 6
    assert log.writer.pending.size == SIZE
    log.write()
    assert next(iterate_batches(log.read(7, 1)))[1].base_offset == 7


def test_retention_of_compacted_topics_deletes_only_before_the_start_offset() -> None:
    log = log_of(7, cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    assert log.delete_old_segments(NOW + 9999) == 0
    log.advance_log_start_offset(5)
    assert log.delete_old_segments(NOW + 9999) == 2
    assert (log.log_start_offset, log.segments.bases) == (5, [4, 6])


def test_deleted_records_are_hidden_at_once_and_removed_by_retention() -> None:
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=-1)
    log.advance_log_start_offset(3)
    log.advance_log_start_offset(2)
    assert (log.log_start_offset, log.first_base_offset) == (3, 0)
    with pytest.raises(KafkaError) as caught:
        log.advance_log_start_offset(8)
    assert caught.value.code == ErrorCode.offset_out_of_range
    with pytest.raises(KafkaError):
        log.advance_log_start_offset(5, high_watermark=4)
    assert log.delete_old_segments(NOW) == 1
    assert (log.log_start_offset, log.first_base_offset) == (3, 2)


def test_files_of_deleted_segments_stay_for_a_while() -> None:
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=1000, file_delete_delay_ms=500)
    log.flush()
    log.delete_old_segments(NOW + 1031)
    renamed = [name for name in disk.list("/data/t-0") if name.endswith(".deleted")]
    assert renamed == [f"{base:020d}{suffix}.deleted" for base in (0, 2) for suffix in (".index", ".log", ".timeindex")]
    assert log.take_deleted_files(NOW + 1530) == []
    assert sorted(log.take_deleted_files(NOW + 1531)) == [f"/data/t-0/{name}" for name in renamed]
    assert log.take_deleted_files(NOW + 9999) == [], "they are handed out once"


def test_snapshots_go_with_their_segments() -> None:
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=1000)
    log.delete_old_segments(NOW + 1031)
    assert [name for name in disk.list("/data/t-0") if name.endswith(".snapshot")] == [
        f"{base:020d}.snapshot" for base in (4, 6)
    ]


def test_retention_uses_the_same_times_after_a_restart() -> None:
    disk = MemoryDisk()
    log = log_of(7, disk, retention_ms=1000)
    log.close()
    for clean in (True, False):
        log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW + 10**6, clean=clean)
        assert log.delete_old_segments(NOW + 1010) == 0
    assert log.delete_old_segments(NOW + 1011) == 1


def test_silent_producers_are_forgotten() -> None:
    log = log_of(3, producer_id_expiration_ms=1000)
    assert log.expire_producers(NOW + 1020) == 0
    assert log.expire_producers(NOW + 1021) == 1
