"""Rolling, the two indexes, and looking up by time, against a plain scan. Row M1."""

import random
from itertools import pairwise

import pytest

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.turns import at_once
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, append, batch, new_log


def test_a_segment_is_rolled_before_it_grows_too_large() -> None:
    disk = MemoryDisk()
    size = len(batch(NOW))
    log = new_log(disk, segment_bytes=3 * size)
    for _ in range(7):
        append(log, NOW)
    assert log.segments.bases == [0, 3, 6]
    assert [disk.size(f"/data/t-0/{base:020d}.log") for base in (0, 3, 6)] == [3 * size, 3 * size, size]


def test_a_segment_is_rolled_when_its_records_span_too_much_time() -> None:
    log = new_log(segment_ms=1000)
    for time_ms in (NOW, NOW + 999, NOW + 1000, NOW + 1001, NOW + 1500, NOW + 2002):
        append(log, time_ms)
    assert log.segments.bases == [0, 3, 5]


def test_a_segment_of_records_without_time_is_rolled_by_the_clock() -> None:
    log = new_log(segment_ms=1000)
    for elapsed in (0, 1000, 1001, 1500):
        append(log, -1, now_ms=NOW + elapsed)
    assert log.segments.bases == [0, 2]


def test_jitter_rolls_logs_at_different_ages() -> None:
    bases = set()
    for number in range(20):
        config = LogConfig(segment_ms=100, segment_jitter_ms=90)
        log = Log.open(MemoryDisk(), f"/data/t-{number}", config, now_ms=NOW)
        for elapsed in range(0, 101, 5):
            append(log, NOW + elapsed)
        bases.add(log.segments.bases[1])
    assert len(bases) > 5


def ages_at_the_roll(**config: int) -> list[int]:
    """How old, in ms, the first segments of two hundred logs become."""
    ages = []
    for number in range(200):
        log = Log.open(MemoryDisk(), f"/data/t-{number}", LogConfig(**config), now_ms=NOW)
        append(log, NOW)
        segment = log.segments[0]
        ages.append(next(age for age in range(200) if segment.must_roll(1, 1, NOW + age, NOW)))
    return ages


@pytest.mark.parametrize("jitter_ms", [100, 100_000], ids=["of a segment's age", "beyond it"])
def test_logs_that_begin_together_are_rolled_evenly_over_the_jitter(jitter_ms: int) -> None:
    ages = ages_at_the_roll(segment_ms=100, segment_jitter_ms=jitter_ms)
    assert 1 <= min(ages) < max(ages) <= 101
    for first in range(0, 100, 20):
        assert 20 <= sum(first < age <= first + 20 for age in ages) <= 60, "a fifth of them, more or less"
    assert max(ages.count(age) for age in ages) <= 10


def test_each_segment_of_a_log_has_its_own_jitter() -> None:
    log = new_log(segment_ms=100, segment_jitter_ms=100)
    for elapsed in range(3000):
        append(log, NOW + elapsed)
    bases = log.segments.bases
    ages = [after - before for before, after in pairwise(bases)]
    assert len(ages) > 30
    assert len(set(ages)) > 20


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    log = new_log(segment_index_bytes=36, index_interval_bytes=0)
    for _ in range(12):
        append(log, NOW)
    assert log.segments.bases == [0, 5, 10], "four entries of 8 bytes, none for the first batch"
    log = new_log(segment_index_bytes=36, index_interval_bytes=0)
    for number in range(12):
        append(log, NOW + number)
    assert log.segments.bases == [0, 3, 6, 9], "two entries of 12 bytes, and room for a last one"


def test_rolling_many_times_before_one_write_keeps_the_order() -> None:
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=200)
    sent = [batch(NOW, size=100) for _ in range(9)]
    for data in sent:
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    assert disk.list("/data/t-0") == ["00000000000000000000.log"], "files are created in the order of writing"
    log.write()
    assert log.segments.bases == list(range(9))
    assert b"".join(log.read(offset, 10_000) for offset in range(9)) == b"".join(sent)


def test_a_read_returns_batches_of_one_segment() -> None:
    log = new_log(segment_bytes=250)
    for _ in range(6):
        append(log, NOW, size=20)
    assert log.segments.bases == [0, 2, 4]
    offset, seen = 0, []
    while data := log.read(offset, 10_000):
        headers = [header for _, header in iterate_batches(data)]
        seen.append([header.base_offset for header in headers])
        offset = headers[-1].next_offset
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_offset_is_found_whatever_the_sizes(seed: int, reopen: bool) -> None:
    chance = random.Random(seed)
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=30_000, index_interval_bytes=chance.choice([0, 300, 4096]))
    firsts = []
    for _ in range(400):
        count = chance.randint(1, 4)
        firsts += [append(log, *[NOW] * count, size=chance.choice([1, 50, 700]))] * count
    if reopen:
        log.close()
        log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW, clean=True)
    assert len(log.segments.bases) > 3
    for offset, first in enumerate(firsts):
        assert next(iterate_batches(log.read(offset, 1)))[1].base_offset == first


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_first_record_since_a_time_is_the_one_that_a_scan_finds(seed: int, reopen: bool) -> None:
    chance = random.Random(seed)
    disk = MemoryDisk()
    log = new_log(disk, segment_bytes=4000, index_interval_bytes=chance.choice([0, 200, 1000]))
    times: list[int] = []
    for number in range(120):
        some = [NOW + number * 10 + chance.randint(-200, 200) for _ in range(chance.randint(1, 3))]
        codec = chance.choice([Codec.NONE, Codec.LZ4])
        log.append_as_leader(batch(*some, codec=codec), leader_epoch=number // 50, now_ms=NOW)
        log.write()
        times += some
    if reopen:
        log.close()
        log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW, clean=True)
    for wanted in [*range(NOW - 250, NOW + 1500, 7), *times]:
        expected = next(((time_ms, offset) for offset, time_ms in enumerate(times) if time_ms >= wanted), None)
        found = at_once(log.find_offset(wanted))
        assert (found and found[:2]) == expected
    found = at_once(log.find_max_timestamp())
    assert found[:2] == (max(times), times.index(max(times)))
    assert found.leader_epoch == log.epochs.epoch_at(found.offset)


def test_truncated_timestamps_are_forgotten() -> None:
    log = new_log(index_interval_bytes=0, retention_ms=1000)
    for number in range(6):
        append(log, NOW + 100 * number)
    log.truncate_to(3)
    for number in range(3, 9):
        append(log, NOW + 10 * number)
    assert at_once(log.find_offset(NOW + 150)) == (NOW + 200, 2, 0)
    assert at_once(log.find_offset(NOW + 201)) is None
    assert at_once(log.find_max_timestamp()) == (NOW + 200, 2, 0)
    append(log, NOW + 205)
    assert at_once(log.find_offset(NOW + 201)) == (NOW + 205, 9, 0)
    assert log.delete_old_segments(NOW + 1206) == 1, "no record is later than 205"


def test_deleted_and_unwritten_records_are_not_found_by_time() -> None:
    log = new_log()
    for time_ms in (NOW + 50, NOW + 10, NOW + 30):
        append(log, time_ms)
    log.append_as_leader(batch(NOW + 99), leader_epoch=0, now_ms=NOW)
    assert at_once(log.find_offset(NOW + 60)) is None
    assert at_once(log.find_max_timestamp()) == (NOW + 50, 0, 0)
    log.write()
    assert at_once(log.find_max_timestamp()) == (NOW + 99, 3, 0)
    log.truncate_to(3)
    log.advance_log_start_offset(1)
    assert at_once(log.find_offset(NOW)) == (NOW + 10, 1, 0)
    assert at_once(log.find_max_timestamp()) == (NOW + 30, 2, 0)


def test_an_empty_log_and_records_without_time_have_no_latest() -> None:
    log = new_log()
    assert at_once(log.find_max_timestamp()) is None
    assert at_once(log.find_offset(0)) is None
    append(log, -1)
    assert at_once(log.find_max_timestamp()) is None


def test_few_descriptors_are_enough_for_many_logs() -> None:
    disk = MemoryDisk()
    pool = FilePool(disk, limit=5)
    logs = [Log.open(pool, f"/data/t-{number}", LogConfig(segment_bytes=300), now_ms=NOW) for number in range(20)]
    for turn in range(12):
        for log in logs:
            assert append(log, NOW + turn) == turn
            assert pool.open_files <= 5
    for log in logs:
        assert [next(iterate_batches(log.read(offset, 1)))[1].base_offset for offset in range(12)] == list(range(12))
    assert pool.open_files <= 5
    for log in logs:
        log.close()
    assert pool.open_files == 0


def test_a_pinned_file_stays_open_while_others_come_and_go() -> None:
    pool = FilePool(MemoryDisk(), limit=2)
    pool.disk.make_directories("/d")
    pinned = pool.file("/d/pinned")
    raw = pinned.pin()
    for number in range(10):
        pool.file(f"/d/{number}").append([b"x"])
    raw.append([b"still open"])
    pinned.close()
    raw.append([b", until it is unpinned"])
    pinned.unpin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        raw.append([b"!"])
    assert pinned.read(0, 100) == b"still open, until it is unpinned"
