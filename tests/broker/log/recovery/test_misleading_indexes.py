"""An index that has the form of one and is wrong is noticed when it misleads, and built anew. Row M1."""

import logging
import struct
from collections.abc import Callable
from itertools import pairwise

import pytest

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.offset_index import ENTRY as OFFSET_ENTRY
from odradek.broker.log.segments.time_index import ENTRY as TIME_ENTRY
from odradek.broker.turns import at_once
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.errors import CorruptBatchError
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, append, flip, new_log, put

FIRST = f"/data/t-0/{0:020d}"
CONFIG = {"segment_bytes": 5000, "index_interval_bytes": 300}
Rows = list[tuple[int, ...]]
Harm = Callable[[Rows], Rows]


def written() -> tuple[MemoryDisk, Log]:
    """A log of 200 batches in several segments, as a clean shutdown left it; its times rise by 10 ms."""
    disk = MemoryDisk()
    log = new_log(disk, **CONFIG)
    for number in range(200):
        append(log, NOW + 10 * number)
    log.close()
    return disk, log


def opened(disk: MemoryDisk) -> Log:
    return Log.open(disk, "/data/t-0", LogConfig(**CONFIG), now_ms=NOW, clean=True)


def rows(disk: MemoryDisk, path: str, layout: struct.Struct) -> Rows:
    return list(layout.iter_unpack(disk.read_file(path)))


def harm(disk: MemoryDisk, path: str, layout: struct.Struct, change: Harm) -> None:
    put(disk, path, b"".join(layout.pack(*row) for row in change(rows(disk, path, layout))))


def read(log: Log, offset: int) -> int:
    """The offset of the first record that a reader takes out of what it gets."""
    header = next(header for _, header in iterate_batches(log.read(offset, 1)))
    assert header.base_offset <= offset <= header.last_offset
    return max(header.base_offset, offset)


def mendings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "rebuilt from the segment" in record.getMessage()]


@pytest.mark.parametrize("active", [False, True], ids=["finished", "active"])
@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [(offset, position + 7) for offset, position in rows],
        lambda rows: [(offset, rows[-1][1]) for offset, _ in rows],
        lambda rows: [(max(offset - 9, 0), position) for offset, position in rows],
        lambda rows: [*((offset, 2**31) for offset, _ in rows[:-1]), rows[-1]],
        lambda rows: [(row[0], other[1]) for row, other in zip(rows, reversed(rows), strict=True)],
    ],
    ids=["inside of batches", "one batch", "offsets of others", "beyond the segment", "falling"],
)
def test_a_wrong_offset_index_is_rebuilt_when_it_is_used(
    change: Harm, caplog: pytest.LogCaptureFixture, *, active: bool
) -> None:
    disk, log = written()
    base = log.segments.bases[-1 if active else 1]
    path = f"/data/t-0/{base:020d}.index"
    true = rows(disk, path, OFFSET_ENTRY)
    harm(disk, path, OFFSET_ENTRY, change)
    again = opened(disk)
    offsets = [each for each in range(base, 200) if not active or each < again.log_end_offset]
    with caplog.at_level(logging.WARNING, "odradek.log"):
        assert [read(again, offset) for offset in offsets] == offsets
        append(again, NOW + 5000)
    assert len(mendings(caplog)) <= 1
    if not active:
        assert path in mendings(caplog)[0]
        assert rows(disk, path, OFFSET_ENTRY) == true


@pytest.mark.parametrize(
    ("change", "misled"),
    [
        (lambda rows: [(time + 15, offset) for time, offset in rows], True),
        (lambda rows: [(time - 200, offset) for time, offset in rows], True),
        (lambda rows: [(time, rows[-1][1]) for time, _ in rows], True),
        (lambda rows: rows[:3], True),
        (lambda rows: rows[-1:], False),
    ],
    ids=["later times", "earlier times", "one offset", "cut", "only the end"],
)
def test_a_wrong_time_index_is_rebuilt_when_it_is_used(
    change: Harm, caplog: pytest.LogCaptureFixture, *, misled: bool
) -> None:
    disk, log = written()
    base = log.segments.bases[1]
    path = f"/data/t-0/{base:020d}.timeindex"
    true = rows(disk, path, TIME_ENTRY)
    harm(disk, path, TIME_ENTRY, change)
    again = opened(disk)
    with caplog.at_level(logging.WARNING, "odradek.log"):
        for number in range(200):
            found = at_once(again.find_offset(NOW + 10 * number - 5))
            assert (found.timestamp, found.offset) == (NOW + 10 * number, number)
    assert len(mendings(caplog)) == misled
    if misled:
        assert rows(disk, path, TIME_ENTRY) == true


def test_retention_confirms_an_indexed_time_from_the_batches() -> None:
    disk, log = written()
    harm(disk, f"{FIRST}.timeindex", TIME_ENTRY, lambda rows: [(time - 10**6, offset) for time, offset in rows])
    again = opened(disk)
    again.update_config(LogConfig(**CONFIG, retention_ms=10**5))
    assert again.delete_old_segments(NOW + 2000) == 0
    assert again.delete_old_segments(NOW + 10**6) == len(log.segments.bases)


def test_the_index_of_a_damaged_segment_is_not_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    disk, _ = written()
    index = disk.read_file(f"{FIRST}.index")
    position = OFFSET_ENTRY.unpack_from(index, 16)[1]
    flip(disk, f"{FIRST}.log", position + 16)  # the magic of a batch to which an entry points
    offset = OFFSET_ENTRY.unpack_from(index, 16)[0]
    log = opened(disk)
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            log.read(offset, 1)
    assert read(log, offset + 10) == offset + 10, "what the index finds behind the damage is still found"
    assert mendings(caplog) == []
    assert disk.read_file(f"{FIRST}.index") == index


def test_a_batch_with_a_too_large_end_offset_does_not_hide_later_ones() -> None:
    disk, _ = written()
    flip(disk, f"{FIRST}.log", 8)  # its length has another first byte
    with pytest.raises(CorruptBatchError):
        opened(disk).read(1, 1)


def test_reading_a_segment_truncated_after_a_clean_shutdown_fails() -> None:
    disk, log = written()
    file = disk.open(f"{FIRST}.log")
    file.truncate(file.size() - 20)
    with pytest.raises(CorruptBatchError):
        opened(disk).read(log.segments.bases[1] - 1, 1)


@pytest.mark.parametrize("active", [False, True], ids=["finished", "active"])
@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [*((timestamp, 10**6) for timestamp, _ in rows[:-1]), rows[-1]],
        lambda rows: [*rows[:-1], (rows[-1][0] + 10**9, 10**6)],
        lambda rows: [(timestamp - 10**6, 10**6) for timestamp, _ in rows],
    ],
    ids=["all but the last", "the last", "all, too early"],
)
def test_a_time_index_with_offsets_beyond_its_segment_is_rebuilt(active: bool, change: Harm) -> None:
    disk, log = written()
    harm(disk, f"/data/t-0/{log.segments.bases[-1 if active else 1]:020d}.timeindex", TIME_ENTRY, change)
    again = opened(disk)
    found = [at_once(again.find_offset(NOW + 10 * number)) for number in range(200)]
    assert [each and each.offset for each in found] == list(range(200))
    largest = at_once(opened(disk).find_max_timestamp())
    assert largest.offset == 199


@pytest.mark.parametrize("emptied", [(".index",), (".timeindex",), (".index", ".timeindex")], ids="+".join)
def test_an_empty_index_of_the_active_segment_is_rebuilt_at_the_start(
    emptied: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's DumpLogSegments leaves such files."""
    disk, log = written()
    active = f"/data/t-0/{log.segments.bases[-1]:020d}"
    before = {suffix: disk.read_file(active + suffix) for suffix in (".index", ".timeindex")}
    for suffix in emptied:
        put(disk, active + suffix, b"")
    opened(disk).close()
    assert {suffix: disk.read_file(active + suffix) for suffix in before} == before
    assert caplog.text.count("an index is empty") == 1
    opened(disk).close()
    assert caplog.text.count("an index is empty") == 1


def test_indexes_that_are_empty_while_their_segment_is_written_to_are_filled() -> None:
    """Kafka's DumpLogSegments leaves empty files of an active segment, whose indexes are in memory."""
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=50_000, index_interval_bytes=300)
    for number in range(100):
        append(log, NOW + 10 * number)
        if number == 50:
            for suffix in (".index", ".timeindex"):
                assert not disk.exists(FIRST + suffix)
                put(disk, FIRST + suffix, b"")
    log.close()
    positions = [position for _, position in rows(disk, f"{FIRST}.index", OFFSET_ENTRY)]
    assert positions[0] < 500
    assert max(after - before for before, after in pairwise(positions)) < 500
    assert rows(disk, f"{FIRST}.timeindex", TIME_ENTRY)[-1] == (NOW + 990, 99)


@pytest.mark.parametrize("sizes", [(), (10,), (2000,), (10, 2000), (100, 10)])
def test_a_short_active_segment_has_no_entries_and_is_not_read_again(
    sizes: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    log = new_log(disk, **CONFIG)
    for size in sizes:
        log.append_as_leader(encode_batch([(NOW, None, b"x" * size, ())]), leader_epoch=0, now_ms=NOW)
        log.write()
    log.close()
    assert not disk.read_file(f"{FIRST}.index")
    opened(disk)
    assert "an index is empty" not in caplog.text


def test_pending_batches_keep_their_times_when_an_index_is_rebuilt() -> None:
    disk, log = written()
    path = f"/data/t-0/{log.segments.bases[-1]:020d}.timeindex"
    harm(disk, path, TIME_ENTRY, lambda rows: [*rows[:-1], (NOW + 10**9, rows[-1][1])])
    again = opened(disk)
    again.append_as_leader(encode_batch([(NOW + 5000, b"k", b"v", ())]), leader_epoch=0, now_ms=NOW)
    assert at_once(again.find_max_timestamp()) is not None
    again.write()
    found = at_once(again.find_max_timestamp())
    assert (found.timestamp, found.offset) == (NOW + 5000, 200)
