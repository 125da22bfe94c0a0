"""What was acknowledged and is gone, though the broker was shut down cleanly, is not passed over in silence. Row M1."""

from pathlib import Path

import pytest
from test_log_verification import FIRST, FOLDER, NOW, data_directory, put, segments
from test_misleading_indexes import OFFSET_ENTRY, TIME_ENTRY, opened, read, rows, written

from odradek.model import TopicPartition
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import SystemDisk
from odradek.testing.disk import MemoryDisk

PARTITION = TopicPartition("t", 0)


def cut(disk: MemoryDisk, path: str, size: int) -> None:
    disk.open(path).truncate(size)


@pytest.mark.parametrize("size", ["nothing", "a batch's end", "inside of a header", "inside of a batch"])
def test_a_segment_that_was_cut_answers_corrupt_message_at_each_start(
    size: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, log = written()
    kept = 0 if size == "nothing" else 16
    rest = {"inside of a header": 20, "inside of a batch": 70}.get(size, 0)
    cut(disk, f"{FIRST}.log", rest + (dict(rows(disk, f"{FIRST}.index", OFFSET_ENTRY))[kept] if kept else 0))
    following = log.segment_base_offsets[1]
    whole = [3, following] if kept else [following]
    for _ in range(2):
        caplog.clear()
        again = opened(disk)
        assert f"{FIRST}.log is cut: what it had from offset {kept} to {following - 1} is lost" in caplog.text
        for offset in (20, following - 1):
            with pytest.raises(CorruptBatchError):
                again.read(offset, 1)
        assert [read(again, each) for each in whole] == whole
        again.close()


@pytest.mark.parametrize("entry", [(9, 2**30), (2**30, 2**30)])
def test_an_index_that_points_beyond_a_whole_segment_does_not_accuse_it(
    entry: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    disk, _ = written()
    path = f"{FIRST}.index"
    true = rows(disk, path, OFFSET_ENTRY)
    put(disk, path, b"".join(OFFSET_ENTRY.pack(*row) for row in [*true, entry]) + bytes(entry[0] == 2**30))
    opened(disk)
    assert "is cut" not in caplog.text
    assert rows(disk, path, OFFSET_ENTRY) == true


def test_a_segment_that_is_gone_is_named_by_the_indexes_that_are_left(caplog: pytest.LogCaptureFixture) -> None:
    disk, _ = written()
    disk.remove(f"{FIRST}.log")
    opened(disk)
    assert caplog.text.count("has no .log beside it and is removed") == 1
    assert f"{FIRST}.index has no .log beside it" in caplog.text


@pytest.mark.parametrize("harm", ["removed", "emptied", "cut"])
def test_a_log_that_ends_before_what_was_synced_may_not_lead_those_who_have_it(
    harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, manager = data_directory()
    last = f"{segments(disk)[-1]}.log"
    disk.remove(last) if harm == "removed" else cut(disk, last, 0 if harm == "emptied" else disk.size(last) - 1)
    manager.open(NOW)
    assert not manager.were_closed
    assert f"{FOLDER} ends at offset {manager.get(PARTITION).log_end_offset}, and was synced up to 60" in caplog.text  # type: ignore[union-attr]
    manager.close()
    manager.open(NOW)
    assert manager.were_closed


def test_a_batch_whose_offset_is_beyond_its_segment_is_not_given_out() -> None:
    disk, _ = written()
    data = bytearray(disk.read_file(f"{FIRST}.log"))
    data[0] ^= 0x41  # no checksum covers it
    put(disk, f"{FIRST}.log", data)
    with pytest.raises(CorruptBatchError):
        opened(disk).read(0, 1)


def test_zeros_that_a_crash_left_are_no_index() -> None:
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
