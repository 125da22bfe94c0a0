"""`RecordFilter` by the library (`odradek.kernels`), which runs without the interpreter's lock.

One call finds, indexes or filters all batches of a buffer; compressed and transactional batches need one call each.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from odradek.broker.log.cleaner.checked_batches import Chunk, Piece, Run, Section, check
from odradek.broker.log.cleaner.compaction_rows import BATCH, KEPT, RESULT
from odradek.broker.log.cleaner.offset_map import OffsetMap
from odradek.broker.log.cleaner.record_filter import Kept, KeptBatch, KeptRun
from odradek.broker.log.errors import TruncatedFileError
from odradek.broker.log.segments.batch_scan import FoundBatch, scan_file
from odradek.broker.log.segments.segment_swap import Source
from odradek.kernels import FULL, MOST_GROWTH, Library
from odradek.protocol.batches.checksum import crc32c
from odradek.protocol.batches.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    read_header,
    write_crc,
)
from odradek.protocol.batches.record_walk import MIN_RECORD_BYTES
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import File

_MOST_BATCHES: Final = 1024
_MOST_OFFSET: Final = (1 << 63) - 1

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]


class CompiledRecordFilter:
    """The compiled `RecordFilter`. Its buffers are reused for each chunk."""

    def __init__(self, library: Library, offsets: OffsetMap) -> None:
        self.offsets = offsets
        self._library = library
        self._secret = np.frombuffer(offsets.secret, np.uint64)
        self._batches = np.zeros(_MOST_BATCHES, BATCH)
        self._one_batch = np.zeros(1, BATCH)
        self._kept = np.zeros(_MOST_BATCHES, KEPT)
        self._result = np.zeros(1, RESULT)
        self._input, self._section, self._flags, self._output = (np.zeros(1, np.uint8) for _ in range(4))

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self, file: File, source: Source, *, position: int, read_bytes: int, now_ms: int) -> Iterator[Chunk]:
        lowest = source.base_offset
        self._input = _at_least(self._input, read_bytes)
        while position < source.size:
            data = self._input.data[: source.size - position]
            if (there := file.read_into(position, data)) < len(data):
                raise TruncatedFileError(
                    source.path, position, f"became shorter while it was read: {there} of {len(data)} bytes"
                )
            used = 0
            while chunk := self._find(used, len(data) - used, source, position + used, lowest, now_ms):
                used += chunk.size
                lowest = chunk.last.next_offset
                yield chunk
            if not used:
                # The batch is larger than the buffer, or damaged; these calls raise the error of a damaged one.
                batch = next(scan_file(file, source.path, source.size, position=position, read_bytes=len(data)))
                check(batch, source, lowest)
                self._input = _at_least(self._input, batch.header.size)
            position += used

    def _find(self, begin: int, length: int, source: Source, position: int, lowest: int, now_ms: int) -> Chunk | None:
        """Return up to `_MOST_BATCHES` whole batches in `length` buffered bytes from `begin` on, or None."""
        place, data = _address(self._input) + begin, self._input.data[begin : begin + length]
        self._library.find_batches(
            place, length, lowest, source.next_offset, now_ms, _address(self._batches), _MOST_BATCHES,
            _address(self._result),
        )  # fmt: skip
        count, size, _ = self._result[0].tolist()
        if not count:
            return None
        batches = self._batches[:count]
        starts = (batches["place"] - place).tolist()
        for start, length, crc in zip(starts, batches["size"].tolist(), batches["crc"].tolist(), strict=True):
            if crc32c(data[start + CRC_START : start + length]) != crc:
                check(
                    FoundBatch(position + start, read_header(data, start), data[start : start + length]), source, lowest
                )
        found: list[FoundBatch | Run] = []
        first = 0
        for row in np.flatnonzero(batches["is_other"]).tolist():
            if first < row:
                found.append(self._run(first, row))
            start, first = starts[row], row + 1
            header = read_header(data, start)
            found.append(FoundBatch(position + start, header, data[start : start + header.size]))
        if first < count:
            found.append(self._run(first, count))
        return Chunk(found, size, read_header(data, starts[-1]))

    def _run(self, first: int, end: int) -> Run:
        rows = self._batches[first:end]
        return Run(
            first_row=first,
            row_count=end - first,
            size=int(rows["size"].sum()),
            base_offset=int(rows[0]["base_offset"]),
            last_offset=int(rows[-1]["last_offset"]),
            record_count=int(rows["record_count"].sum()),
        )

    # ---- keys ---------------------------------------------------------------------------------------------------

    def index_keys(self, pieces: Sequence[Piece], from_offset: int) -> bool:
        offsets = self.offsets
        for piece in pieces:
            rows = self._rows(piece, now_ms=0)
            offsets.reserve(_most_records(piece))
            self._result[0] = offsets.size, 0, offsets.latest_offset
            status = self._library.index_keys(
                _address(rows), len(rows), from_offset, _address(offsets.slots), len(offsets.slots), offsets.max_keys,
                _address(self._secret), _address(self._result),
            )  # fmt: skip
            _refuse_malformed(rows, status)
            offsets.size, _, offsets.latest_offset = self._result[0].tolist()
            if status == FULL:
                return True
        return False

    def _rows(self, piece: Piece, *, now_ms: int) -> Rows:
        if isinstance(piece, Run):
            return self._batches[piece.first_row : piece.first_row + piece.row_count]
        size = HEADER_SIZE + len(piece.data)
        self._section = _at_least(self._section, size)
        batch = self._section.data[:size]
        HEADER.pack_into(batch, 0, *piece.header._replace(batch_length=size - LENGTH_OVERHEAD))
        batch[HEADER_SIZE:] = piece.data
        self._library.find_batches(
            _address(self._section), size, 0, _MOST_OFFSET, now_ms, _address(self._one_batch), 1,
            _address(self._result),
        )  # fmt: skip
        assert self._result[0]["count"] == 1, "its header was checked when it was read"
        self._one_batch["is_other"] = 1
        return self._one_batch

    # ---- records ------------------------------------------------------------------------------------------------

    def keep_records(
        self, pieces: Sequence[Piece], *, now_ms: int, horizon_ms: int, last_offsets: Sequence[int]
    ) -> list[Kept | KeptRun]:
        sizes = [piece.size if isinstance(piece, Run) else HEADER_SIZE + len(piece.data) for piece in pieces]
        growth = sum(MOST_GROWTH * _most_records(piece) for piece in pieces)
        self._output = _at_least(self._output, sum(sizes) + growth)
        self._flags = _at_least(self._flags, max(sizes, default=0) // MIN_RECORD_BYTES)
        output, begin = self._output.data, 0
        answers: list[Kept | KeptRun] = []
        for piece in pieces:
            rows = self._rows(piece, now_ms=now_ms)
            if isinstance(piece, Run):
                _keep_last_batches(rows, piece, last_offsets)
            slots = self.offsets.slots
            status = self._library.keep_records(
                _address(rows), len(rows), self.offsets.latest_offset, horizon_ms, _address(slots), len(slots),
                _address(self._secret), _address(self._flags), _address(self._output) + begin,
                _address(self._kept), _address(self._result),
            )  # fmt: skip
            _refuse_malformed(rows, status)
            count, size, _ = self._result[0].tolist()
            kept, data = self._kept[:count].tolist(), output[begin : begin + size]
            begin += size
            answers.append(_kept_run(kept, data) if isinstance(piece, Run) else _kept_section(piece, kept, data))
        return answers


def _address(array: npt.NDArray[Any]) -> int:
    place: int = array.ctypes.data
    return place


def _at_least(buffer: Bytes, size: int) -> Bytes:
    return buffer if len(buffer) >= size else np.zeros(size, np.uint8)


def _most_records(piece: Piece) -> int:
    """Return the most records that `piece` can have; the batch header's count may be wrong."""
    if isinstance(piece, Run):
        return max(min(piece.record_count, piece.size // MIN_RECORD_BYTES), 0)
    return max(min(piece.header.record_count, len(piece.data) // MIN_RECORD_BYTES), 0)


def _refuse_malformed(rows: Rows, status: int) -> None:
    if status >= 0:
        raise CorruptBatchError(f"the records of the batch at offset {rows[status]['base_offset']} are malformed")


def _keep_last_batches(rows: Rows, run: Run, last_offsets: Sequence[int]) -> None:
    """Set `keep_empty` for batches whose last offset is in `last_offsets`, which stay even without records."""
    first = bisect_left(last_offsets, run.base_offset)
    here = last_offsets[first : bisect_right(last_offsets, run.last_offset, first)]
    if here:
        rows["keep_empty"] = np.isin(rows["last_offset"], here)


def _kept_run(kept: list[tuple[int, ...]], data: memoryview) -> KeptRun:
    """Return the kept batches of a run, with new checksums where they changed."""
    position = 0
    batches = []
    for base_offset, last_offset, size, count, timestamp, is_changed, _ in kept:
        if is_changed:
            write_crc(data, position, position + size)
        batches.append(KeptBatch(base_offset, last_offset, size, count, timestamp))
        position += size
    return KeptRun(data, batches)


def _kept_section(section: Section, kept: list[tuple[int, ...]], data: memoryview) -> Kept:
    header = section.header
    if not kept:
        return Kept(0, b"", header.max_timestamp, False)
    ((_, _, _, count, timestamp, is_changed, has_new_horizon),) = kept
    return Kept(count, data[HEADER_SIZE:] if is_changed else None, timestamp, bool(has_new_horizon))
