"""Reading a log's segments: batches from an offset on, and records by time as ListOffsets asks for them.

Only what is written is found, and nothing that is deleted. All of it raises `OSError` when a file cannot be read.
"""

from collections.abc import Sequence

from odradek.log.segment import Segment, TimestampOffset
from odradek.log.segments import Segments
from odradek.log.transaction_index import AbortedTransaction
from odradek.protocol.records import decode_records


def read_batches(
    segments: Segments, offset: int, max_bytes: int, *, limit: int, written: int, at_least_one: bool
) -> bytes:
    """Batches from the one with `offset` on, out of one segment, none of them at `limit` or beyond; see `Log.read`.

    `written` is the end of the log, so that most reads look up no limit.
    """
    for number in range(segments.find(offset), len(segments)):
        segment = segments[number]
        position = segment.find(offset)
        is_cut = limit < written and limit < segment.next_offset
        end = min(segment.find(limit), segment.written_size) if is_cut else segment.written_size
        if position < end:
            return segment.read(position, max_bytes, end, at_least_one=at_least_one)
    return b""


def collect_aborted(segments: Segments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with a record in `from_offset` to `to_offset`, exclusive, in the order of their ends."""
    found: list[AbortedTransaction] = []
    for number in range(segments.find(from_offset), len(segments)):
        aborted = segments[number].aborted
        if aborted is not None:
            some, is_all = aborted.collect(from_offset, to_offset)
            found += some
            if is_all:
                break
    return found


def size_between(segments: Segments, from_offset: int, to_offset: int) -> int:
    """The bytes of the batches in `from_offset` to `to_offset`, exclusive."""
    size = 0
    for number in range(segments.find(from_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= to_offset:
            break
        start = segment.find(from_offset) if from_offset > segment.base_offset else 0
        size += segment.find(to_offset) - start
    return size


def find_first_since(segments: Sequence[Segment], timestamp: int, log_start_offset: int) -> TimestampOffset | None:
    """The record with the lowest offset among those that are not earlier than `timestamp` (ms)."""
    for segment in segments:
        if segment.max_timestamp >= timestamp:
            found = segment.find_time(timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def find_latest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """The first of the records with the largest timestamp (KIP-734), or None if no record has a timestamp."""
    largest = max(segment.max_timestamp for segment in segments)
    if largest < 0:
        return None
    found = find_first_since(segments, largest, log_start_offset)
    if found is not None:
        return found
    # The record that has it is not written yet, or it is deleted and its segment is not.
    largest = max((_latest(segment, log_start_offset) for segment in segments), default=-1)
    return find_first_since(segments, largest, log_start_offset) if largest >= 0 else None


def _latest(segment: Segment, log_start_offset: int) -> int:
    """The largest timestamp of what is written from `log_start_offset` on, -1 if there is none; reads all headers."""
    largest = -1
    for position, header in segment.scan():
        if header.last_offset < log_start_offset or header.max_timestamp <= largest:
            continue
        if header.base_offset >= log_start_offset or header.is_log_append_time:
            largest = header.max_timestamp
        else:
            records = decode_records(segment.log.read(position, header.size))
            largest = max(largest, *(each.timestamp for each in records if each.offset >= log_start_offset))
    return largest
