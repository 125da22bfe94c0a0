"""ListOffsets by time: the first record at or after a timestamp, and the record with the largest timestamp.

Batch headers select the batch to read; if its records cannot be read, its header is used (docs/decisions/0005).
Functions raise `OSError` and `DamagedSegmentError`.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from odradek.log.segments.segment import Segment
from odradek.protocol.batches.compression import decompress
from odradek.protocol.batches.record_batch import HEADER_SIZE, BatchHeader
from odradek.protocol.batches.record_walk import walk_records
from odradek.protocol.errors import CorruptBatchError

_NO_TIMESTAMP: Final = -1
_MOST_WRONG_TIMES: Final = 64
MOST_RECORDS: Final = 1 << 16
_MOST_BYTES: Final = 16 << 20
"""In batches with more records, or more bytes once decompressed, the first offset is found for the largest timestamp.

Looking at so many records takes 0.15 s of the event loop. Kafka's clients write fewer with default settings.
"""


class TimestampOffset(NamedTuple):
    """A record found by time; `timestamp` in ms."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_first_since(segments: Sequence[Segment], timestamp: int, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record with at least `timestamp` (ms), or None."""
    for segment in segments:
        segment.confirm_times()
        if segment.max_timestamp >= timestamp:
            found = _first_in_segment(segment, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def find_latest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """Return the first record with the largest timestamp (KIP-734), None without timestamps."""
    for segment in segments:
        segment.confirm_times()
    largest = max(segment.max_timestamp for segment in segments)
    if largest < 0:
        return None
    found = find_first_since(segments, largest, log_start_offset)
    # `found` is None if the record is not written yet or before the log start offset, or if a header is wrong.
    return found if found is not None else _latest(segments, log_start_offset)


def _first_in_segment(segment: Segment, timestamp: int, from_offset: int) -> TimestampOffset | None:
    start = _start(segment, timestamp, from_offset)
    for position, header in segment.scan(start):
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            for time, offset in _times(segment, position, header, from_offset):
                if time >= timestamp:
                    return TimestampOffset(time, offset, header.partition_leader_epoch)
    return None


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


def _latest(segments: Sequence[Segment], from_offset: int) -> TimestampOffset | None:
    """Return the first record with the largest timestamp from `from_offset` on; reads all headers of few segments."""
    found = TimestampOffset(_NO_TIMESTAMP, -1, -1)
    for segment in sorted(segments, key=lambda each: -each.max_timestamp):
        if segment.max_timestamp < max(found.timestamp, 0):
            break
        visible = (each for each in segment.scan() if each[1].last_offset >= from_offset)
        # Usually the first header is right. After `_MOST_WRONG_TIMES` wrong ones, the largest timestamp so far is used.
        for position, header in nlargest(
            _MOST_WRONG_TIMES, visible, key=lambda each: (each[1].max_timestamp, -each[0])
        ):
            if header.max_timestamp < max(found.timestamp, 0):
                break
            for time, offset in _times(segment, position, header, from_offset):
                if (time, -offset) > (found.timestamp, -found.offset):
                    found = TimestampOffset(time, offset, header.partition_leader_epoch)
    return found if found.offset >= 0 else None


def _times(segment: Segment, position: int, header: BatchHeader, from_offset: int) -> Iterator[tuple[int, int]]:
    """Yield `(timestamp, offset)` of records from `from_offset` on; the header's if they are unreadable."""
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
            bytes(decompress(header.codec, memoryview(data)[HEADER_SIZE:], max_bytes=limit)), count
        ):
            offset = base_offset + offset_delta
            if offset >= from_offset:
                yield (header.max_timestamp if header.is_log_append_time else base_timestamp + timestamp_delta), offset
    except CorruptBatchError:
        yield header.max_timestamp, max(base_offset, from_offset)
