"""Rebuilding a segment's offset and time index from its batches when an entry is wrong.

At the start only an index file's size and last entry are checked, as in Kafka (`sanityCheck`); other entries when they
are used. If one is wrong, all batch headers are read: if these are consistent, the indexes are replaced, else the
segment is damaged.
"""

from collections.abc import Iterable

from msgspec import Struct

from odradek.broker.log.segments.index_file import Pair
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.time_index import NO_TIMESTAMP
from odradek.protocol.batches.record_batch import BatchHeader, CorruptBatchError


class RebuiltIndexes(Struct, frozen=True, kw_only=True):
    """The rows of both indexes, the end of the batches (`size`, `next_offset`), and their largest timestamp or -1."""

    offset_rows: list[Pair]
    time_rows: list[Pair]
    size: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int


def rebuilt_indexes(
    batches: Iterable[tuple[int, BatchHeader]], base_offset: int, *, size: int, interval_bytes: int
) -> RebuiltIndexes:
    """Return the indexes for a segment's batches, each `(position, header)`.

    Raises `CorruptBatchError` if offsets do not rise or are too far from `base_offset`, or batches end beyond `size`.
    """
    offset_rows: list[Pair] = []
    time_rows: list[Pair] = []
    expected, end, since = base_offset, 0, 0
    latest, latest_offset, noted = NO_TIMESTAMP, base_offset, NO_TIMESTAMP
    for position, header in batches:
        first, last, batch_bytes, timestamp = header.base_offset, header.last_offset, header.size, header.max_timestamp
        if not expected <= first <= last <= base_offset + MAX_RELATIVE_OFFSET:
            raise CorruptBatchError(
                f"a batch at byte {position} has offsets {first} to {last}; expected were offsets from {expected} to "
                f"{base_offset + MAX_RELATIVE_OFFSET}"
            )
        if timestamp > latest:
            latest, latest_offset = timestamp, last
        if since > interval_bytes:
            offset_rows.append((last - base_offset, position))
            if latest > noted:
                time_rows.append((latest, latest_offset - base_offset))
                noted = latest
            since = 0
        since += batch_bytes
        expected, end = last + 1, position + batch_bytes
    if end > size:
        raise CorruptBatchError(f"the last batch ends at byte {end}, and {size} are there")
    if latest > noted:
        time_rows.append((latest, latest_offset - base_offset))
    return RebuiltIndexes(
        offset_rows=offset_rows,
        time_rows=time_rows,
        size=end,
        next_offset=expected,
        max_timestamp=latest,
        max_timestamp_offset=latest_offset,
    )
