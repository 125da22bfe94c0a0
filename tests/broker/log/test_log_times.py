"""Looking up records by time, against a search through all of them; and in batches whose headers lie. Row M1."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.log import time_lookup
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.time_lookup import MOST_RECORDS, TURN_RECORDS
from odradek.broker.turns import at_once
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE, read_header, write_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000


class Kept(NamedTuple):
    """One record, as the test remembers it."""

    timestamp: int
    offset: int
    leader_epoch: int


class Remembered:
    """A log, and the list of what is in it."""

    def __init__(self, **config: object) -> None:
        self.disk = MemoryDisk()
        self.settings = LogConfig(
            segment_ms=10**12,
            message_timestamp_after_max_ms=10**12,
            retention_ms=-1,  # a record of the year 1970 is not too old here
            **config,
        )
        self.log = Log.open(self.disk, "/data/t-0", self.settings, now_ms=NOW)
        self.records: list[Kept] = []
        self.batches: list[int] = []

    def append(self, times: list[int], codec: Codec, epoch: int, append_time: int | None) -> None:
        kind = "CreateTime" if append_time is None else "LogAppendTime"
        self.log.update_config(LogConfig(**{**self._fields(), "message_timestamp_type": kind}))
        batch = encode_batch([(time, b"k", b"v" * 20, ()) for time in times], codec=codec)
        info = self.log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW if append_time is None else append_time)
        self.log.write()
        self.batches.append(info.first_offset)
        self.records += [
            Kept(time if append_time is None else append_time, info.first_offset + number, epoch)
            for number, time in enumerate(times)
        ]

    def reopen(self, *, clean: bool) -> None:
        if clean:
            self.log.close()
        self.log = Log.open(
            self.disk,
            "/data/t-0",
            self.settings,
            now_ms=NOW,
            clean=clean,
            recovery_point=self.log.writer.recovery_point,
            log_start_offset=self.log.log_start_offset,
        )

    def truncate(self, offset: int) -> None:
        end = max((each for each in self.batches if each <= offset), default=self.log.log_start_offset)
        if end < self.log.log_start_offset:
            return
        self.log.truncate_to(end)
        self.batches = [each for each in self.batches if each < end]
        self.records = [each for each in self.records if each.offset < end]

    def delete(self, offset: int) -> None:
        self.log.advance_log_start_offset(offset)
        self.records = [each for each in self.records if each.offset >= self.log.log_start_offset]

    def agrees(self) -> None:
        known = {each.timestamp for each in self.records}
        for timestamp in {0, NOW, *(time + step for time in known for step in (-1, 0, 1))} - {-1, -2}:
            due = next((each for each in self.records if each.timestamp >= timestamp), None)
            assert at_once(self.log.find_offset(timestamp)) == due, timestamp
        latest = max((each for each in self.records if each.timestamp >= 0), key=lambda e: e.timestamp, default=None)
        assert at_once(self.log.find_max_timestamp()) == latest

    def _fields(self) -> dict[str, object]:
        return {name: getattr(self.settings, name) for name in LogConfig.__slots__}


_TIMES = st.one_of(st.just(-1), st.integers(NOW, NOW + 8), st.sampled_from([0, NOW + 500, NOW - 500]))
_APPENDS = st.tuples(
    st.just("append"),
    st.lists(_TIMES, min_size=1, max_size=4),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.booleans(),
    st.one_of(st.none(), st.none(), st.integers(NOW, NOW + 8)),
)
_CHANGES = st.tuples(
    st.sampled_from(["truncate", "delete", "reopen clean", "reopen", "delete segments"]), st.integers(0, 30)
)


@given(
    steps=st.lists(st.one_of(_APPENDS, _APPENDS, _APPENDS, _CHANGES), min_size=1, max_size=25),
    segment_bytes=st.sampled_from([200, 500, 5000]),
    interval=st.sampled_from([0, 150, 4096]),
)
def test_a_look_up_by_time_finds_what_a_full_scan_finds(
    steps: list[tuple[object, ...]], segment_bytes: int, interval: int
) -> None:
    world = Remembered(segment_bytes=segment_bytes, index_interval_bytes=interval)
    epoch = 0
    for step in steps:
        match step:
            case "append", list() as times, Codec() as codec, bool() as new_leader, append_time:
                epoch += new_leader
                world.append(times, codec, epoch, append_time)
            case "truncate", int() as offset:
                world.truncate(offset)
            case "delete", int() as offset:
                world.delete(min(offset, world.log.log_end_offset))
            case "reopen clean", _:
                world.reopen(clean=True)
            case "reopen", _:
                world.reopen(clean=False)
            case "delete segments", _:
                world.log.delete_old_segments(NOW)
        world.agrees()


# ---- headers that lie ------------------------------------------------------------------------------------------------


def log_with(*batches: bytes | bytearray) -> Log:
    log = Log.open(MemoryDisk(), "/data/t-0", LogConfig(validate_all=False), now_ms=NOW)
    for batch in batches:
        log.append_as_leader(bytearray(batch), leader_epoch=4, now_ms=NOW)
    log.write()
    return log


def lying(batch: bytearray, **fields: int) -> bytearray:
    write_header(batch, read_header(batch)._replace(**fields))
    return batch


def batch_at(*times: int, codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch([(time, b"k", b"v", ()) for time in times], codec=codec)


def unreadable(codec: Codec) -> bytearray:
    """A batch with a right checksum around nonsense."""
    batch = batch_at(NOW + 50, NOW + 60)
    batch[HEADER_SIZE:] = b"\xff\xff\xff\xff nonsense, and more of it"
    return lying(batch, attributes=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_unreadable_records_does_not_block_a_look_up(codec: Codec) -> None:
    log = log_with(batch_at(NOW), unreadable(codec), batch_at(NOW + 70, NOW + 90))
    assert at_once(log.find_offset(NOW)) == (NOW, 0, 4)
    assert at_once(log.find_offset(NOW + 55)) == (NOW + 60, 1, 4), "its header is believed"
    assert at_once(log.find_offset(NOW + 61)) == (NOW + 70, 3, 4)
    assert at_once(log.find_max_timestamp()) == (NOW + 90, 4, 4)
    log = log_with(batch_at(NOW), unreadable(codec))
    assert at_once(log.find_max_timestamp()) == (NOW + 60, 1, 4)


def test_a_timestamp_of_a_header_without_a_record_is_not_returned() -> None:
    liars = [lying(batch_at(NOW + n), max_timestamp=NOW + 1000) for n in range(5)]
    log = log_with(*liars, batch_at(NOW + 9, NOW + 8), batch_at(NOW + 9))
    assert at_once(log.find_offset(NOW + 500)) is None
    assert at_once(log.find_offset(NOW + 3)) == (NOW + 3, 3, 4)
    assert at_once(log.find_max_timestamp()) == (NOW + 9, 5, 4)
    log.advance_log_start_offset(6)
    assert at_once(log.find_max_timestamp()) == (NOW + 9, 7, 4)


def test_after_many_wrong_headers_the_latest_record_so_far_is_returned() -> None:
    log = log_with(*[lying(batch_at(NOW + n), max_timestamp=NOW + 1000) for n in range(100)])
    found = at_once(log.find_max_timestamp())
    assert found.timestamp == NOW + found.offset


def test_a_decompression_bomb_is_not_opened_to_find_a_time() -> None:
    bomb = lying(
        encode_batch([(NOW, None, b"", ())], codec=Codec.ZSTD),
        record_count=MOST_RECORDS + 1,
        last_offset_delta=MOST_RECORDS,
    )
    log = log_with()
    log.append_as_leader(bomb, leader_epoch=4, now_ms=NOW, from_client=False)
    log.append_as_leader(batch_at(NOW + 5), leader_epoch=4, now_ms=NOW)
    log.write()
    assert at_once(log.find_offset(NOW - 5)) == (NOW, 0, 4)
    assert at_once(log.find_max_timestamp()) == (NOW + 5, MOST_RECORDS + 1, 4)


def test_very_many_record_headers_are_not_walked_to_find_a_time() -> None:
    few, many = [("", None)] * (MOST_RECORDS // 2), [("", None)] * (MOST_RECORDS // 2 + 1)
    records = [(NOW + number, None, b"", headers) for number, headers in enumerate([few, few, many, ()])]
    log = log_with()
    for some in (records[:2], records[1:]):
        batch = encode_batch(some, codec=Codec.ZSTD)
        log.append_as_leader(batch, leader_epoch=4, now_ms=NOW, from_client=False)
    log.write()
    assert at_once(log.find_offset(NOW + 1)) == (NOW + 1, 1, 4)
    assert at_once(log.find_offset(NOW + 3)) == (NOW + 3, 2, 4), "the first offset of a batch that is not read"


def test_a_search_takes_turns_between_which_the_log_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_lookup, "TURN_BATCHES", 10)
    log = log_with(batch_at(NOW + 50), *[batch_at(NOW + number % 7) for number in range(100)], batch_at(NOW + 20))
    log.advance_log_start_offset(1)
    for search in (log.find_offset(NOW + 10), log.find_max_timestamp()):
        weights: list[int] = []
        with pytest.raises(StopIteration) as done:
            while True:
                weights.append(next(search))
        assert done.value.value == (NOW + 20, 101, 4)
        assert weights.count(10) >= 10
    search = log.find_offset(NOW + 10)
    next(search)
    log.truncate_to(5)
    assert at_once(search) is None


def test_each_batch_with_a_wrong_header_is_read_in_a_turn() -> None:
    log = log_with(*[lying(batch_at(NOW + n), max_timestamp=NOW + 1000) for n in range(5)])
    assert list(log.find_offset(NOW + 500)) == [time_lookup.TURN_BATCHES] * 6


def test_the_records_of_a_large_batch_are_looked_at_in_turns() -> None:
    count = 10 * TURN_RECORDS
    log = log_with(encode_batch([(NOW + number, None, b"", ()) for number in range(count)]))
    log.advance_log_start_offset(count // 2)
    search, turns = log.find_offset(NOW + count - 1), 0
    with pytest.raises(StopIteration) as done:
        while True:
            next(search)
            turns += 1
    assert (done.value.value, turns) == ((NOW + count - 1, count - 1, 4), 9)


def test_a_batch_that_takes_too_much_memory_decompressed_is_not_opened_either() -> None:
    big = encode_batch([(NOW + n, None, b"v" * 1000, ()) for n in range(10)], codec=Codec.GZIP)
    log = log_with(big)
    assert at_once(log.find_offset(NOW + 5)) == (NOW + 5, 5, 4)
    small = Log.open(MemoryDisk(), "/data/t-0", LogConfig(validate_all=False, validate_max_bytes=5000), now_ms=NOW)
    small.append_as_leader(big, leader_epoch=4, now_ms=NOW)
    small.write()
    assert at_once(small.find_offset(NOW + 5)) == (NOW + 9, 0, 4)
