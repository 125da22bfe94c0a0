"""Indexes anew out of a segment that is being read: an index that misleads must not stand between readers and records.

At the start an index file is believed for its size and its last entry, as in Kafka (`sanityCheck`), because to hold
every entry against its batch is to read the segment. Whether an entry told the truth is seen when it is used, for
nothing: an offset's batch begins at that offset or before it, and the batch of a time has it. Where that is not so, the
segment's headers are walked from its first byte on. If that comes to its end, it was the index that was wrong, and the
segment gets what is here; if not, the segment is damaged, and stays so for its readers.
"""

from collections.abc import Iterable

from odradek.log.segments.index_file import Pair
from odradek.log.segments.time_index import NO_TIMESTAMP
from odradek.model.values import dataclass
from odradek.protocol.record_batch import BatchHeader, CorruptBatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueIndexes:
    """What the two indexes of a segment should have, as rows of their files, of the batches up to `size`.

    `next_offset` is where these end; `max_timestamp` (ms, -1 without any) and its offset are theirs.
    """

    offset_rows: list[Pair]
    time_rows: list[Pair]
    size: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int


def true_indexes(
    batches: Iterable[tuple[int, BatchHeader]], base_offset: int, *, size: int, interval_bytes: int
) -> TrueIndexes:
    """Walk the batches of a segment, each `(position, header)`, of which `size` bytes are written.

    About a microsecond for each. Raises `CorruptBatchError` if they are not end to end, with offsets that rise.
    """
    offset_rows: list[Pair] = []
    time_rows: list[Pair] = []
    expected, end, since = base_offset, 0, 0
    latest, latest_offset, noted = NO_TIMESTAMP, base_offset, NO_TIMESTAMP
    for position, header in batches:
        first, last, batch_bytes, timestamp = header.base_offset, header.last_offset, header.size, header.max_timestamp
        if not expected <= first <= last:
            raise CorruptBatchError(f"a batch at byte {position} has offsets {first} to {last}, and {expected} was due")
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
    return TrueIndexes(
        offset_rows=offset_rows,
        time_rows=time_rows,
        size=end,
        next_offset=expected,
        max_timestamp=latest,
        max_timestamp_offset=latest_offset,
    )
