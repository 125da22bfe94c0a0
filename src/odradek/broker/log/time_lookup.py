"""ListOffsets by time: the first record at or after a timestamp, and the record with the largest timestamp.

Batch headers select the batch to read; if its records cannot be read, its header is used (docs/decisions/0005).
Functions raise `OSError` and `DamagedSegmentError`.
"""

from collections.abc import Generator, Iterator
from heapq import heappush, heappushpop
from typing import Final, NamedTuple, TypeAlias

from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments
from odradek.protocol.batches.compression import decompress
from odradek.protocol.batches.record_batch import HEADER_SIZE, BatchHeader
from odradek.protocol.batches.record_walk import walk_records
from odradek.protocol.errors import CorruptBatchError

_NO_TIMESTAMP: Final = -1
_MOST_WRONG_TIMES: Final = 64
MOST_RECORDS: Final = 1 << 16
_MOST_BYTES: Final = 16 << 20
"""The records of larger batches are not read: a search returns their largest timestamp and their first offset.

Looking at so many records takes 0.15 s, in turns. Kafka's clients write fewer with default settings.
"""
TURN_RECORDS: Final = 1024
"""Limit of records that are looked at before other tasks run, which takes 3 ms."""
TURN_BATCHES: Final = 4096
"""Limit of headers read before other tasks run, which takes 4 ms; `TURN_RECORDS` of a batch count as much."""
_BATCH: Final = 4


class TimestampOffset(NamedTuple):
    """A record found by time; `timestamp` in ms."""

    timestamp: int
    offset: int
    leader_epoch: int


Lookup: TypeAlias = Generator[int, None, TimestampOffset | None]
"""A search that yields the weight of its parts. Between them the log may change."""


def find_first_since(segments: Segments, timestamp: int, log_start_offset: int) -> Lookup:
    """Return the first record with at least `timestamp` (ms), or None."""
    offset: int | None = log_start_offset
    while offset is not None:
        batch, offset = _next_batch(segments, timestamp, offset)
        if batch is not None:
            for number, (time, at) in enumerate(_times(*batch, log_start_offset), 1):
                if time >= timestamp and at >= log_start_offset:
                    return TimestampOffset(time, at, batch[2].partition_leader_epoch)
                if not number % TURN_RECORDS:  # they are in memory, whatever happens to the log
                    yield TURN_BATCHES
        yield TURN_BATCHES
    return None


def find_latest(segments: Segments, log_start_offset: int) -> Lookup:
    """Return the first record with the largest timestamp (KIP-734), None without timestamps."""
    for segment in segments:
        segment.confirm_times()
    largest = max(segment.max_timestamp for segment in segments)
    if largest < 0:
        return None
    found = yield from find_first_since(segments, largest, log_start_offset)
    # `found` is None if the record is not written yet or before the log start offset, or if a header is wrong.
    return found if found is not None else (yield from _latest(segments, log_start_offset))


def _next_batch(
    segments: Segments, timestamp: int, from_offset: int
) -> tuple[tuple[Segment, int, BatchHeader] | None, int | None]:
    """Return the next batch with `timestamp` or a later one, and the offset after it, None at the log's end.

    Without a batch, the offset is where the next turn continues: segments may have changed until then.
    """
    left = TURN_BATCHES
    for segment in segments[segments.find(from_offset) :]:
        segment.confirm_times()
        if segment.max_timestamp >= timestamp:
            for position, header in segment.scan(_start(segment, timestamp, from_offset)):
                if header.last_offset >= from_offset:
                    if header.max_timestamp >= timestamp:
                        return (segment, position, header), header.next_offset
                    left -= 1
                    if not left:
                        return None, header.next_offset
    return None, None


def _start(segment: Segment, timestamp: int, from_offset: int) -> int:
    """Return the position to search from for `timestamp`; rebuild a wrong index."""
    known, offset = segment.time_index.entry_below(timestamp)
    position = segment.find(max(offset, from_offset))
    if known >= 0 and offset >= from_offset:
        header = next((header for _, header in segment.scan(position)), None)
        if header is None:
            is_true = segment.size != segment.written_size
        else:
            is_true = header.base_offset <= offset and header.max_timestamp == known
        if not is_true and segment.rebuild_indexes(f"the largest timestamp up to offset {offset} is not {known}"):
            offset = segment.time_index.entry_below(timestamp)[1]
            position = segment.find(max(offset, from_offset))
    return position


def _latest(segments: Segments, from_offset: int) -> Lookup:
    """Return the first record with the largest timestamp from `from_offset` on; reads all headers."""
    # Usually the first header is right. After `_MOST_WRONG_TIMES` wrong ones, the largest timestamp so far is used.
    largest: list[tuple[int, int]] = []
    offset: int | None = from_offset
    while offset is not None:
        is_full = len(largest) == _MOST_WRONG_TIMES
        batch, offset = _next_batch(segments, largest[0][0] + 1 if is_full else 0, offset)
        if batch is not None:
            (heappushpop if is_full else heappush)(largest, (batch[2].max_timestamp, -batch[2].base_offset))
        yield TURN_BATCHES if batch is None else _BATCH
    found = TimestampOffset(_NO_TIMESTAMP, -1, -1)
    for timestamp, base in sorted(largest, reverse=True):
        if timestamp < max(found.timestamp, 0):
            break
        batch, _ = _next_batch(segments, timestamp, max(-base, from_offset))
        if batch is not None:
            for number, (time, at) in enumerate(_times(*batch, from_offset), 1):
                if at >= from_offset and (time, -at) > (found.timestamp, -found.offset):
                    found = TimestampOffset(time, at, batch[2].partition_leader_epoch)
                if not number % TURN_RECORDS:
                    yield TURN_BATCHES
        yield TURN_BATCHES
    return found if found.offset >= 0 else None


def _times(segment: Segment, position: int, header: BatchHeader, from_offset: int) -> Iterator[tuple[int, int]]:
    """Yield `(timestamp, offset)` of each record; the header's, from `from_offset` on, if they are unreadable."""
    base_offset, base_timestamp, count = header.base_offset, header.base_timestamp, header.record_count
    if header.is_log_append_time and count == header.last_offset_delta + 1:
        yield header.max_timestamp, max(base_offset, from_offset)
        return
    try:
        if count > MOST_RECORDS:
            raise CorruptBatchError(f"{count} records are too many to look at")
        data = segment.log.read(position, header.size)
        limit = min(segment.config.validate_max_bytes, _MOST_BYTES)
        for timestamp_delta, offset_delta, _ in walk_records(
            bytes(decompress(header.codec, memoryview(data)[HEADER_SIZE:], max_bytes=limit)), count, MOST_RECORDS
        ):
            time = header.max_timestamp if header.is_log_append_time else base_timestamp + timestamp_delta
            yield time, base_offset + offset_delta
    except CorruptBatchError:
        yield header.max_timestamp, max(base_offset, from_offset)
