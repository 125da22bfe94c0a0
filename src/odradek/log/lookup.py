"""Finding records by time, as ListOffsets asks for them. Only what is written is found, and nothing that is deleted."""

from collections.abc import Sequence

from odradek.log.segment import Segment, TimestampOffset


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
    times = [
        header.max_timestamp
        for segment in segments
        for _, header in segment.scan()
        if header.last_offset >= log_start_offset
    ]
    return find_first_since(segments, max(times), log_start_offset) if times else None
