"""The same as `PlainRecordFilter` by compiled code, without the interpreter's lock, where llvmlite is installed.

What is compressed, or belongs to a transaction, comes one batch at a time as in the plain way. All other batches of a
buffer are found, looked into and written anew by one call each; what Python does for a batch is its checksum.
"""

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from odradek.columns import compaction_layout as layout
from odradek.log.checked_batches import Chunk, Piece, Run, Source, check, wrong_checksum
from odradek.log.errors import CutFileError
from odradek.log.offset_table import OffsetTable
from odradek.log.record_filter import Kept, KeptBatch, KeptRun
from odradek.log.scanning import FoundBatch, scan_file
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.record_batch import BatchHeader, read_header, write_crc
from odradek.runtime import File

if TYPE_CHECKING:
    from odradek.columns.compaction_code import CompactionCode

_MOST_ROWS: Final = 1024
_WORD: Final = 8


class _Bytes:
    """Memory for compiled code that is used again and again, and grows to what is asked for."""

    __slots__ = ("_pin", "address", "data", "size")

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self.data = memoryview(bytearray(self.size))
        self._pin = ctypes.c_char.from_buffer(self.data)
        self.address = ctypes.addressof(self._pin)

    def reserve(self, size: int) -> None:
        """Have room for `size` bytes; what was there is lost, and views of it stay what they are."""
        if size > self.size:
            _Bytes.__init__(self, size)


class _Numbers(_Bytes):
    """The same for `count` int64, in `numbers`."""

    __slots__ = ("numbers",)

    def __init__(self, count: int) -> None:
        super().__init__(count * _WORD)
        self.numbers = self.data.cast("q")


class CompiledRecordFilter:
    """See `RecordFilter`."""

    def __init__(self, code: "CompactionCode", max_bytes: int, load_factor: float, *, secret: bytes) -> None:
        """The last three are for its `OffsetTable`."""
        self.offsets = OffsetTable(max_bytes, load_factor, secret=secret, move_slots=code.move_slots)
        self._code = code
        self._rows = _Numbers(_MOST_ROWS * layout.ROW_WIDTH)
        self._marks = _Numbers(_MOST_ROWS * layout.MARK_WIDTH)
        self._kept = _Numbers(_MOST_ROWS * layout.KEPT_WIDTH)
        self._state = _Numbers(layout.STATE_WIDTH)
        self._row = _Numbers(layout.ROW_WIDTH)
        self._input = _Bytes(0)
        self._section = _Bytes(0)
        self._flags = _Bytes(0)
        self._output = _Bytes(0)

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self, file: File, source: Source, *, position: int, read_bytes: int, now_ms: int) -> Iterator[Chunk]:
        """See `RecordFilter`."""
        buffer, path, lowest = self._input, source.path, source.base_offset
        buffer.reserve(read_bytes)
        while position < source.size:
            length = min(buffer.size, source.size - position)
            if (there := file.read_into(position, buffer.data[:length])) < length:
                raise CutFileError(path, position, f"became shorter while it was read: {there} of {length} bytes")
            used = 0
            while chunk := self._found(used, length - used, source, position, lowest, now_ms):
                used += chunk.size
                lowest = chunk.last.next_offset
                yield chunk
            if not used:
                # It is larger than the buffer, or none: that is for somebody else to say.
                batch = next(scan_file(file, path, source.size, position=position, read_bytes=length))
                check(batch, source, lowest)
                buffer.reserve(batch.header.size)
            position += used

    def _found(self, begun: int, length: int, source: Source, position: int, lowest: int, now_ms: int) -> Chunk | None:
        """The whole batches of the buffer from `begun` on, as many as there are rows for; None if there are none."""
        buffer, rows, state = self._input, self._rows, self._state.numbers
        count = self._code.find_batches(
            buffer.address + begun, length, lowest, source.next_offset, now_ms, rows.address, _MOST_ROWS,
            self._marks.address, self._state.address,
        )  # fmt: skip
        if not count:
            return None
        data = buffer.data[begun : begun + length]
        marks = iter(self._marks.numbers[: count * layout.MARK_WIDTH].tolist())
        batch = 0
        for start, end, crc in zip(marks, marks, marks, strict=True):
            if crc32c(data[start:end]) != crc:
                raise wrong_checksum(source, position + begun + batch)
            batch = end
        last = read_header(data, self._place(count - 1) - buffer.address - begun)
        if not state[layout.OTHERS]:
            return Chunk([self._run(0, count)], state[layout.USED_BYTES], last)
        return Chunk(self._with_others(count, position), state[layout.USED_BYTES], last)

    def _place(self, row: int) -> int:
        return self._rows.numbers[row * layout.ROW_WIDTH + layout.PLACE]

    def _with_others(self, count: int, position: int) -> list[FoundBatch | Run]:
        """Runs, and between them what is to be decided by somebody else."""
        buffer, width = self._input, layout.ROW_WIDTH
        others = self._rows.numbers[layout.IS_OTHER : count * width : width].tolist()
        found: list[FoundBatch | Run] = []
        first = 0
        for row, is_other in enumerate(others):
            if not is_other:
                continue
            if first < row:
                found.append(self._run(first, row - first))
            begun = self._place(row) - buffer.address
            header = read_header(buffer.data, begun)
            found.append(FoundBatch(position + begun, header, buffer.data[begun : begun + header.size]))
            first = row + 1
        if first < count:
            found.append(self._run(first, count - first))
        return found

    def _run(self, first: int, count: int) -> Run:
        rows, width = self._rows.numbers, layout.ROW_WIDTH
        last = (first + count - 1) * width
        return Run(
            first_row=first,
            row_count=count,
            size=rows[last + layout.SECTION] + rows[last + layout.SECTION_SIZE] - self._place(first),
            base_offset=rows[first * width + layout.BASE_OFFSET],
            last_offset=rows[last + layout.BASE_OFFSET] + rows[last + layout.LAST_OFFSET_DELTA],
            record_count=sum(rows[first * width + layout.RECORD_COUNT : last + width : width].tolist()),
        )

    # ---- keys ---------------------------------------------------------------------------------------------------

    def index_keys(self, pieces: Sequence[Piece], from_offset: int) -> bool:
        """See `RecordFilter`."""
        offsets, state = self.offsets, self._state.numbers
        for piece in pieces:
            rows, count = self._table(piece, now_ms=0)
            offsets.reserve(_most_records(piece))
            state[layout.KEYS], state[layout.LATEST_OFFSET] = offsets.size, offsets.latest_offset
            answer = self._code.index_keys(
                rows, count, from_offset, offsets.address, offsets.slots, offsets.max_keys, offsets.secret.address,
                self._state.address,
            )  # fmt: skip
            self._check(piece, answer)
            offsets.size, offsets.latest_offset = state[layout.KEYS], state[layout.LATEST_OFFSET]
            if answer == layout.FULL:
                return True
        return False

    def _table(self, piece: Piece, *, now_ms: int) -> tuple[int, int]:
        """Where its rows are, and how many."""
        if isinstance(piece, Run):
            return self._rows.address + piece.first_row * layout.ROW_WIDTH * _WORD, piece.row_count
        (header, data), row = piece, self._row.numbers
        self._section.reserve(len(data))
        self._section.data[: len(data)] = data
        is_fixed = header.is_log_append_time
        row[layout.PLACE] = 0
        row[layout.SECTION], row[layout.SECTION_SIZE] = self._section.address, len(data)
        row[layout.RECORD_COUNT] = header.record_count
        row[layout.BASE_OFFSET], row[layout.LAST_OFFSET_DELTA] = header.base_offset, header.last_offset_delta
        row[layout.BASE_TIMESTAMP] = header.max_timestamp if is_fixed else header.base_timestamp
        row[layout.FIXED_TIMESTAMP], row[layout.MAX_TIMESTAMP] = is_fixed, header.max_timestamp
        has_horizon = header.has_delete_horizon
        row[layout.HORIZON] = has_horizon + (has_horizon and header.base_timestamp <= now_ms)
        return self._row.address, 1

    def _check(self, piece: Piece, answer: int) -> None:
        if answer < 0:
            return
        base_offset = (
            self._rows.numbers[(piece.first_row + answer) * layout.ROW_WIDTH + layout.BASE_OFFSET]
            if isinstance(piece, Run)
            else piece.header.base_offset
        )
        raise CorruptBatchError(f"the records of the batch at offset {base_offset} are malformed")

    # ---- records ------------------------------------------------------------------------------------------------

    def keep_records(
        self, pieces: Sequence[Piece], *, now_ms: int, horizon_ms: int, last_offsets: Sequence[int]
    ) -> list[Kept | KeptRun]:
        """See `RecordFilter`."""
        offsets, output = self.offsets, self._output
        output.reserve(sum(_size(piece) + layout.MOST_GROWTH * _most_records(piece) for piece in pieces))
        self._flags.reserve(max(map(_size, pieces), default=0) // layout.MIN_RECORD_BYTES)
        begun = 0
        answers: list[Kept | KeptRun] = []
        for piece in pieces:
            rows, count = self._table(piece, now_ms=now_ms)
            if isinstance(piece, Run):
                self._mark_last(piece, last_offsets)
            answer = self._code.keep_records(
                rows, count, offsets.latest_offset, horizon_ms, offsets.address, offsets.slots, offsets.secret.address,
                self._flags.address, output.address + begun, self._kept.address,
            )  # fmt: skip
            self._check(piece, answer)
            kept = self._kept.numbers[: (layout.DONE - answer) * layout.KEPT_WIDTH].tolist()
            if isinstance(piece, Run):
                answers.append(self._kept_run(kept, begun))
                begun += len(answers[-1].data or b"")
            else:
                answers.append(_kept_section(piece.header, kept, output.data[begun:]))
                begun += max(kept[layout.KEPT_SIZE], 0)
        return answers

    def _mark_last(self, run: Run, last_offsets: Sequence[int]) -> None:
        """Mark those rows of a run that are to stay without records if need be."""
        first = bisect_left(last_offsets, run.base_offset)
        here = last_offsets[first : bisect_right(last_offsets, run.last_offset, first)]
        if here:
            rows = self._rows.numbers
            for at in range(
                run.first_row * layout.ROW_WIDTH, (run.first_row + run.row_count) * layout.ROW_WIDTH, layout.ROW_WIDTH
            ):
                rows[at + layout.KEEP_EMPTY] = (
                    rows[at + layout.BASE_OFFSET] + rows[at + layout.LAST_OFFSET_DELTA] in here
                )

    def _kept_run(self, kept: list[int], begun: int) -> KeptRun:
        """`begun` is where in the output its bytes are. What was changed gets its checksum."""
        data, position = self._output.data, begun
        batches = []
        columns = iter(kept)
        for base_offset, last_offset, size, count, timestamp, changes in zip(
            *[columns] * layout.KEPT_WIDTH, strict=True
        ):
            if changes:
                write_crc(data, position, position + size)
            batches.append(KeptBatch(base_offset, last_offset, size, count, timestamp))
            position += size
        return KeptRun(data[begun:position], batches)


def _size(piece: Piece) -> int:
    return piece.size if isinstance(piece, Run) else len(piece.data)


def _most_records(piece: Piece) -> int:
    """A number of records that lies may not ask for memory."""
    said = piece.record_count if isinstance(piece, Run) else piece.header.record_count
    return max(min(said, _size(piece) // layout.MIN_RECORD_BYTES), 0)


def _kept_section(header: BatchHeader, kept: list[int], output: memoryview) -> Kept:
    size, count = kept[layout.KEPT_SIZE], kept[layout.KEPT_COUNT]
    if size < 0:
        return Kept(count, None, header.max_timestamp, False)
    latest = kept[layout.KEPT_TIMESTAMP] if count else header.max_timestamp
    return Kept(count, output[:size], latest, bool(kept[layout.KEPT_CHANGES] & layout.NEW_HORIZON))
