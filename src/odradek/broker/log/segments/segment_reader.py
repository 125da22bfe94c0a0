"""Reading written batches and aborted transactions across the segments of a log.

Functions raise `OSError` and `DamagedSegmentError`.
"""

from odradek.broker.log.segments.segment import Lender
from odradek.broker.log.segments.segments import Segments
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.model import Buffer


def read_batches(
    segments: Segments,
    offset: int,
    max_bytes: int,
    *,
    limit: int,
    written: int,
    at_least_one: bool,
    lend: Lender | None = None,
) -> Buffer:
    """Return batches of one segment in `[offset, limit)` of a log written up to `written` (see `LogReader.read`)."""
    for number in range(segments.find(offset), len(segments)):
        segment = segments[number]
        position = segment.find(offset)
        is_cut = limit < written and limit < segment.next_offset
        end = min(segment.find(limit), segment.written_size) if is_cut else segment.written_size
        if position < end:
            return segment.read(position, max_bytes, end, at_least_one=at_least_one, lend=lend)
    return b""


def collect_aborted(segments: Segments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Return aborted transactions with records in `[from_offset, to_offset)`, ordered by marker."""
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
    """Return the bytes of the batches in `[from_offset, to_offset)`."""
    size = 0
    for number in range(segments.find(from_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= to_offset:
            break
        start = segment.find(from_offset) if from_offset > segment.base_offset else 0
        size += segment.find(to_offset) - start
    return size
