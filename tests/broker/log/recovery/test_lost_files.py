"""Acknowledged records that are missing after a clean shutdown are reported. Row M1."""

from pathlib import Path

import pytest

from odradek.broker.log.errors import LogStorageError
from odradek.model import TopicPartition
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log import scene
from tests.broker.log.recovery.test_misleading_indexes import OFFSET_ENTRY, TIME_ENTRY, opened, read, rows, written
from tests.broker.log.scene import FIRST, FOLDER, NOW, data_directory, put, segments

PARTITION = TopicPartition("t", 0)


def cut(disk: MemoryDisk, path: str, size: int) -> None:
    disk.open(path).truncate(size)


@pytest.mark.parametrize("size", ["nothing", "a batch's end", "inside of a header", "inside of a batch"])
def test_a_truncated_segment_answers_corrupt_message_after_each_start(
    size: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, log = written()
    kept = 0 if size == "nothing" else 16
    rest = {"inside of a header": 20, "inside of a batch": 70}.get(size, 0)
    cut(disk, f"{FIRST}.log", rest + (dict(rows(disk, f"{FIRST}.index", OFFSET_ENTRY))[kept] if kept else 0))
    following = log.segments.bases[1]
    whole = [3, following] if kept else [following]
    for _ in range(2):
        caplog.clear()
        again = opened(disk)
        assert f"{FIRST}.log is truncated: offsets {kept} to {following - 1} are lost" in caplog.text
        for offset in (20, following - 1):
            with pytest.raises(CorruptBatchError):
                again.read(offset, 1)
        assert [read(again, each) for each in whole] == whole
        again.close()


@pytest.mark.parametrize("entry", [(9, 2**30), (2**30, 2**30)])
def test_an_index_that_points_beyond_a_whole_segment_is_rebuilt(
    entry: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    disk, _ = written()
    path = f"{FIRST}.index"
    true = rows(disk, path, OFFSET_ENTRY)
    put(disk, path, b"".join(OFFSET_ENTRY.pack(*row) for row in [*true, entry]) + bytes(entry[0] == 2**30))
    opened(disk)
    assert "is truncated" not in caplog.text
    assert rows(disk, path, OFFSET_ENTRY) == true


def test_a_missing_segment_is_named_by_its_remaining_indexes(caplog: pytest.LogCaptureFixture) -> None:
    disk, _ = written()
    disk.remove(f"{FIRST}.log")
    opened(disk)
    assert caplog.text.count("has no .log beside it and is removed") == 1
    assert f"{FIRST}.index has no .log beside it" in caplog.text


@pytest.mark.parametrize("harm", ["removed", "emptied", "cut"])
def test_a_log_that_lost_synced_records_cannot_be_used(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    disk, manager = data_directory()
    last = f"{segments(disk)[-1]}.log"
    disk.remove(last) if harm == "removed" else cut(disk, last, 0 if harm == "emptied" else disk.size(last) - 1)
    manager.open(NOW)
    for _ in range(2):  # the checkpoints keep what they say of it
        assert not manager.were_closed
        end_offset = manager.logs[PARTITION].log_end_offset
        assert f"{FOLDER} ends at offset {end_offset}, and its checkpoints have the recovery point 60" in caplog.text
        with pytest.raises(LogStorageError, match="records before offset 60 are lost; start another"):
            manager.statuses.advise(PARTITION, "start another")
            manager.get_or_create(PARTITION, topic_id=None, now_ms=NOW)
        caplog.clear()
        manager.close()
        manager.open(NOW)
    follower = manager.get_or_create(PARTITION, topic_id=None, now_ms=NOW, is_copied=True)
    assert manager.get_or_create(PARTITION, topic_id=None, now_ms=NOW) is follower
    manager.close()
    manager.open(NOW)
    assert manager.were_closed


def test_a_truncation_below_the_high_watermark_is_no_loss_after_a_crash() -> None:
    _, manager = data_directory()
    manager.open(NOW)
    manager.logs[PARTITION].producers.committed(60)
    manager.checkpoints.write_all()
    manager.truncate_to(PARTITION, 39)
    manager.kill()
    manager.open(NOW)
    assert (manager.logs[PARTITION].log_end_offset, len(manager.statuses.lost)) == (39, 0)
    manager.logs[PARTITION].producers.committed(39)
    manager.checkpoints.write_all()
    manager.truncate_fully_and_start_at(PARTITION, 21, NOW)
    manager.kill()
    manager.open(NOW)
    assert (manager.logs[PARTITION].log_end_offset, len(manager.statuses.lost)) == (21, 0)


def test_a_missing_folder_is_a_loss_unless_another_directory_has_the_log() -> None:
    disk, manager = data_directory()
    disk.rename(FOLDER, f"{FOLDER}.away")
    manager.open(NOW)
    (found,) = manager.statuses.lost.values()
    assert (found.end_offset, found.expected_offset) == (None, 60)
    with pytest.raises(LogStorageError, match=f"{FOLDER} is gone"):
        manager.get_or_create(PARTITION, topic_id=None, now_ms=NOW)
    manager.close()
    disk.make_directories(f"/other/{PARTITION}")
    for name in disk.list(f"{FOLDER}.away"):
        disk.replace_file(f"/other/{PARTITION}/{name}", disk.read_file(f"{FOLDER}.away/{name}"))
    both = scene.opened(disk, *manager.directories.paths, "/other")
    assert (len(both.statuses.lost), PARTITION in both.logs) == (0, True)


def test_a_batch_with_an_offset_beyond_its_segment_is_not_returned() -> None:
    disk, _ = written()
    data = bytearray(disk.read_file(f"{FIRST}.log"))
    data[0] ^= 0x41  # no checksum covers it
    put(disk, f"{FIRST}.log", data)
    with pytest.raises(CorruptBatchError):
        opened(disk).read(0, 1)


def test_an_index_of_zeros_is_not_valid() -> None:
    for suffix, layout in ((".index", OFFSET_ENTRY), (".timeindex", TIME_ENTRY)):
        disk, _ = written()
        true = rows(disk, FIRST + suffix, layout)
        put(disk, FIRST + suffix, bytes(disk.size(FIRST + suffix)))
        opened(disk)
        assert rows(disk, FIRST + suffix, layout) == true


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    disk, path = SystemDisk(), str(tmp_path)
    with pytest.raises(IsADirectoryError, match=path):
        disk.read_file(path)
    with pytest.raises(IsADirectoryError, match=path):
        disk.open(path, read_only=True)
