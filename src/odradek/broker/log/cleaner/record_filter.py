"""Decides which records compaction keeps; `compiled_record_filter` does the same in compiled code.

A record stays if it is beyond the last indexed offset, or has a key that no later record has. A tombstone (null value)
is removed after the delete horizon of its batch. The first compaction that keeps a tombstone of a batch sets the
horizon (KIP-534). It replaces the base timestamp, so all timestamp deltas change; the rest of a record is copied.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.broker.log.cleaner.checked_batches import Chunk, Piece, Section, read_chunks
from odradek.broker.log.segments.segment_swap import Source
from odradek.model import Buffer
from odradek.protocol.batches.record_batch import BatchHeader
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import read_varint, varint
from odradek.runtime import File

if TYPE_CHECKING:
    from odradek.broker.log.cleaner.offset_map import OffsetMap

MIN_RECORD_BYTES: Final = 7
NO_TIMESTAMP: Final = -1
_TIMES: Final = range(-(1 << 62), 1 << 62)
"""The valid timestamps: differences of others exceed 64 bits."""


class Kept(NamedTuple):
    """The kept records of a section, encoded in `data`, which is None if all stay unchanged.

    With `has_new_horizon` timestamps are relative to the new delete horizon.
    """

    record_count: int
    data: Buffer | None
    max_timestamp: int
    has_new_horizon: bool


class KeptBatch(NamedTuple):
    """A kept batch of a run; `size` in bytes."""

    base_offset: int
    last_offset: int
    size: int
    record_count: int
    max_timestamp: int


class KeptRun(NamedTuple):
    """The kept batches of a run, end to end in `data`, which is valid until the next `keep_records`."""

    data: Buffer
    batches: Sequence[KeptBatch]


class KeyOffsets(Protocol):
    """The indexed keys; callers may increase `latest_offset`, the last indexed offset."""

    latest_offset: int

    @property
    def utilization(self) -> float:
        """The used share of the memory for keys."""


class RecordFilter(Protocol):
    """Filters records. Methods raise `CorruptBatchError` for records that do not match their header."""

    @property
    def offsets(self) -> KeyOffsets:
        """The indexed keys."""

    def read(self, file: File, source: Source, *, position: int, read_bytes: int, now_ms: int) -> Iterator[Chunk]:
        """Yield the batches of `source` (see `read_chunks`); `now_ms` is compared with delete horizons."""

    def index_keys(self, pieces: Sequence[Piece], from_offset: int) -> bool:
        """Index the keys of the last chunk's records from `from_offset` on; return whether the map is full."""

    def keep_records(
        self, pieces: Sequence[Piece], *, now_ms: int, horizon_ms: int, last_offsets: Sequence[int]
    ) -> Sequence[Kept | KeptRun]:
        """Return the kept records of each piece of the last chunk; new delete horizons are `horizon_ms`.

        Batches whose last offset is in `last_offsets` (sorted) stay even without records.
        """


class PlainRecordFilter:
    """A `RecordFilter` in Python, about 2 µs per record; its chunks have no `Run`."""

    def __init__(self, offsets: "OffsetMap") -> None:
        self.offsets = offsets

    def read(self, file: File, source: Source, *, position: int, read_bytes: int, now_ms: int) -> Iterator[Chunk]:
        return read_chunks(file, source, position=position, read_bytes=read_bytes)

    def index_keys(self, pieces: Sequence[Piece], from_offset: int) -> bool:
        offsets, sections = self.offsets, _sections(pieces)
        if offsets.put(_last_offsets(sections, from_offset)):
            offsets.latest_offset = sections[-1].header.last_offset
            return False
        for section in sections:
            if not offsets.put(_last_offsets([section], from_offset)):
                return _index_until_full(section, offsets, from_offset)
            offsets.latest_offset = section.header.last_offset
        return False

    def keep_records(
        self, pieces: Sequence[Piece], *, now_ms: int, horizon_ms: int, last_offsets: Sequence[int]
    ) -> list[Kept]:
        sections = _sections(pieces)
        walked = [list(_walk(section)) for section in sections]
        keys = [record.key for records in walked for record in records if record.key is not None]
        last = iter(self.offsets.get(keys))
        latest_offset = self.offsets.latest_offset
        answers = []
        for (header, data), records in zip(sections, walked, strict=True):
            is_past_horizon = header.has_delete_horizon and header.base_timestamp <= now_ms
            kept = []
            for record in records:
                is_last = record.key is not None and record.offset >= next(last)
                if record.offset > latest_offset or (is_last and not (record.is_tombstone and is_past_horizon)):
                    kept.append(record)
            answers.append(_kept(header, data, kept, horizon_ms))
        return answers


def _sections(pieces: Sequence[Piece]) -> list[Section]:
    sections = [piece for piece in pieces if isinstance(piece, Section)]
    assert len(sections) == len(pieces), "a run is of the filter that found it"
    return sections


def set_horizon(section: Section, horizon_ms: int) -> Kept:
    """Return all records of a section, with timestamps relative to a new delete horizon. Raises `CorruptBatchError`."""
    return _with_horizon(section.header, section.data, list(_walk(section)), horizon_ms)


class _Record(NamedTuple):
    """A record and its position in its section; the offset delta begins at `rest`."""

    start: int
    rest: int
    end: int
    timestamp: int
    offset: int
    key: bytes | None
    is_tombstone: bool


def _last_offsets(sections: Sequence[Section], from_offset: int) -> dict[bytes, int]:
    return {
        record.key: record.offset
        for section in sections
        for record in _walk(section)
        if record.key is not None and record.offset >= from_offset
    }


def _index_until_full(section: Section, offsets: "OffsetMap", from_offset: int) -> bool:
    for record in _walk(section):
        if record.key is not None and record.offset >= from_offset and not offsets.put({record.key: record.offset}):
            return True
        offsets.latest_offset = record.offset
    return False


def _kept(header: BatchHeader, data: Buffer, records: list[_Record], horizon_ms: int) -> Kept:
    has_new_horizon = not header.has_delete_horizon and any(record.is_tombstone for record in records)
    if len(records) == header.record_count and not has_new_horizon:
        return Kept(len(records), None, header.max_timestamp, False)
    if has_new_horizon:
        return _with_horizon(header, data, records, horizon_ms)
    rest = b"".join([data[record.start : record.end] for record in records])
    return Kept(len(records), rest, _latest(header, records), False)


def _with_horizon(header: BatchHeader, data: Buffer, records: list[_Record], horizon_ms: int) -> Kept:
    parts: list[bytes] = []
    for record in records:
        body = b"\0" + varint(record.timestamp - horizon_ms) + bytes(data[record.rest : record.end])
        parts += (varint(len(body)), body)
    return Kept(len(records), b"".join(parts), _latest(header, records), True)


def _latest(header: BatchHeader, records: list[_Record]) -> int:
    return max([NO_TIMESTAMP, *(record.timestamp for record in records)]) if records else header.max_timestamp


def _walk(section: Section) -> Iterator[_Record]:
    """Yield the records of a section; reads one-byte varints in place, for speed."""
    header, data = section.header, bytes(section.data)
    base_offset, last_offset, base_timestamp = header.base_offset, header.last_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    new, size = tuple.__new__, len(data)
    position = 0
    try:
        for _ in range(header.record_count):
            start = position
            if (n := data[position]) < 0x80:
                n, position = (n >> 1) ^ -(n & 1), position + 1
            else:
                n, position = read_varint(data, position)
            end = position + n
            if n < MIN_RECORD_BYTES - 1 or end > size:
                raise _malformed(header)
            # The byte at `position` has the record's attributes, which are unused.
            if (n := data[position + 1]) < 0x80:
                timestamp, rest = (n >> 1) ^ -(n & 1), position + 2
            else:
                timestamp, rest = read_varint(data, position + 1)
            if (n := data[rest]) < 0x80:
                n, position = (n >> 1) ^ -(n & 1), rest + 1
            else:
                n, position = read_varint(data, rest)
            offset = base_offset + n
            if (n := data[position]) < 0x80:
                n, position = (n >> 1) ^ -(n & 1), position + 1
            else:
                n, position = read_varint(data, position)
            key = None if n < 0 else data[position : (position := position + n)]
            if (n := data[position]) < 0x80:
                n, position = (n >> 1) ^ -(n & 1), position + 1
            else:
                n, position = read_varint(data, position)
            # The header count takes at least one byte.
            if position + (n if n > 0 else 0) >= end:
                raise _malformed(header)
            if timestamp not in _TIMES:
                raise _malformed(header)
            timestamp = base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp
            if not base_offset <= offset <= last_offset or timestamp not in _TIMES:
                raise _malformed(header)
            yield new(_Record, (start, rest, end, timestamp, offset, key, n < 0))
            position = end
    except (IndexError, CorruptBatchError):
        raise _malformed(header) from None
    if position != size:
        raise _malformed(header)


def _malformed(header: BatchHeader) -> CorruptBatchError:
    return CorruptBatchError(f"the records of the batch at offset {header.base_offset} are malformed")
