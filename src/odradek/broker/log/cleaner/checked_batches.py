"""Reading batches for compaction, a buffer at a time, with a check of checksums and offsets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.broker.log.continuity import described, discontinuity
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.segments.batch_scan import FoundBatch, scan_file
from odradek.broker.log.segments.segment_swap import Source
from odradek.model import Buffer
from odradek.protocol.batches.record_batch import BatchHeader
from odradek.runtime import File


class Run(NamedTuple):
    """Adjacent uncompressed, non-transactional batches, in the rows of a `CompiledRecordFilter` from `first_row` on.

    `size` is in bytes; `base_offset` is that of the first batch, `last_offset` that of the last.
    """

    first_row: int
    row_count: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int


class Section(NamedTuple):
    """A batch's decompressed records."""

    header: BatchHeader
    data: Buffer


Piece = Section | Run
"""Records to index or to filter."""


class Chunk(NamedTuple):
    """The batches in `size` bytes, in order; `last` is the last header. Valid until the next chunk is read."""

    batches: Sequence[FoundBatch | Run]
    size: int
    last: BatchHeader


def read_chunks(file: File, source: Source, *, position: int, read_bytes: int) -> Iterator[Chunk]:
    """Yield the batches of `source` from `position` on, at least `read_bytes` at a time until the end.

    Raises `OSError`, and `DamagedFileError` for a batch that is invalid or incomplete.
    """
    batches: list[FoundBatch] = []
    taken, lowest = 0, source.base_offset
    for found in scan_file(file, source.path, source.size, position=position, read_bytes=read_bytes):
        check(found, source, lowest)
        batches.append(found)
        taken += found.header.size
        lowest = found.header.next_offset
        if taken >= read_bytes:
            yield Chunk(batches, taken, found.header)
            batches, taken = [], 0
    if batches:
        yield Chunk(batches, taken, batches[-1].header)


def check(found: FoundBatch, source: Source, lowest: int) -> None:
    """Raise `DamagedFileError` for a wrong checksum, or for offsets below `lowest` or beyond the segment."""
    header = found.header
    fault = discontinuity(header, found.data, next_offset=lowest, last_offset=source.next_offset - 1)
    if fault is not None:
        raise DamagedFileError(source.path, found.position, described(header, fault))
