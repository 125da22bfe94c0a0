"""Decodes record batches to Arrow columns, for Spark tasks and `poll_arrow`."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from odradek.kernels import LIBRARY, Library, address
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from odradek.protocol.batches.record_batch import HEADER_SIZE, BatchHeader, iterate_batches, verify_crc
from odradek.protocol.batches.record_walk import MIN_RECORD_BYTES
from odradek.protocol.batches.records import Record, parse_records
from odradek.protocol.errors import CorruptBatchError

MAX_OFFSET: Final = (1 << 63) - 1
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_MAX_COLUMN_BYTES: Final = (1 << 31) - 1
_CHUNK_BYTES: Final = 8 << 20
_MOST_DELTA: Final = 1 << 31
_LAST_TIME: Final = (1 << 63) - 1
_SECTION: Final = np.dtype(
    [
        ("place", np.int64),
        ("size", np.int64),
        ("record_count", np.int64),
        ("base_offset", np.int64),
        ("base_timestamp", np.int64),  # of every record, with `fixed_timestamp`
        ("fixed_timestamp", np.int64),
        ("rows_end", np.int64),  # written by `decode`
        ("first_wanted", np.int64),
        ("first_unwanted", np.int64),
    ]
)
"""A batch for `kernels.Library.decode`."""


class RecordColumns(Struct, frozen=True, kw_only=True):
    """The columns to decode, in order.

    `timestamp_type` is 0 for create time, 1 for log append time. Spark's timestamps are in `us`, Kafka's in `ms`.
    """

    names: tuple[str, ...] = COLUMNS
    timestamp_unit: Literal["ms", "us"] = "ms"

    def __post_init__(self) -> None:
        unknown = set(self.names) - set(COLUMNS)
        if unknown or len(set(self.names)) != len(self.names):
            raise ValueError(f"columns are some of {', '.join(COLUMNS)}, each once: {', '.join(self.names)}")

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; every column is nullable, as in Spark. Timestamps are in UTC."""
        types = {
            "key": pa.binary(),
            "value": pa.binary(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp(self.timestamp_unit, "UTC"),
            "timestamp_type": pa.int32(),
            "headers": HEADERS_TYPE,
        }
        return pa.schema([pa.field(name, types[name]) for name in self.names])


DEFAULT_COLUMNS: Final = RecordColumns()


class PartitionBatches(NamedTuple):
    """Record batches of one partition in `buffer`, to decode records with offsets `[from_offset, up_to_offset)`.

    `batches`, `(position, header)` pairs as from `iterate_batches`, selects some, for example of transactions that
    were not aborted; None selects all.
    """

    buffer: Buffer
    topic: str
    partition: int
    from_offset: int = 0
    up_to_offset: int = MAX_OFFSET
    batches: Iterable[tuple[int, BatchHeader]] | None = None


class _Section(NamedTuple):
    """A batch's decompressed records in `data`; `place` is the address of its first byte."""

    source: PartitionBatches
    header: BatchHeader
    place: int
    data: Buffer


def decode_batches(
    buffer: Buffer,
    columns: RecordColumns = DEFAULT_COLUMNS,
    *,
    topic: str = "",
    partition: int = 0,
    from_offset: int = 0,
    up_to_offset: int = MAX_OFFSET,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    check_crcs: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """Return the records of all complete batches in `buffer` with offsets in `[from_offset, up_to_offset)`.

    Control batches are skipped. `batches`, pairs of position and header, selects some; None selects all. `max_bytes`
    limits one decompressed batch.

    Raises `CorruptBatchError` for a malformed batch, and `KafkaError`: UNSUPPORTED_FOR_MESSAGE_FORMAT for formats 0 and
    1, RECORD_LIST_TOO_LARGE above 2 GiB, Arrow's limit of a column. `iterate_columns` has no such limit.
    """
    source = PartitionBatches(buffer, topic, partition, from_offset, up_to_offset, batches)
    return decode_partitions([source], columns, check_crcs=check_crcs, max_bytes=max_bytes)


def decode_partitions(
    sources: Iterable[PartitionBatches],
    columns: RecordColumns = DEFAULT_COLUMNS,
    *,
    check_crcs: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """Return the records of several partitions, one after the other.

    Raises `CorruptBatchError` for a malformed batch, `KafkaError` for another message format or more than 2 GiB.
    """
    sections = [each for source in sources for each in _sections(source, max_bytes, check_crcs=check_crcs)]
    return _decode_sections(sections, columns)


def iterate_columns(
    buffer: Buffer,
    columns: RecordColumns = DEFAULT_COLUMNS,
    *,
    topic: str = "",
    partition: int = 0,
    from_offset: int = 0,
    up_to_offset: int = MAX_OFFSET,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    check_crcs: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records that `decode_batches` returns, in chunks of about `chunk_bytes` after decompression.

    A chunk that fits the processor's cache is decoded faster than a larger one. Empty chunks are skipped.
    """
    source = PartitionBatches(buffer, topic, partition, from_offset, up_to_offset, batches)
    return iterate_partitions([source], columns, check_crcs=check_crcs, max_bytes=max_bytes, chunk_bytes=chunk_bytes)


def iterate_partitions(
    sources: Iterable[PartitionBatches],
    columns: RecordColumns = DEFAULT_COLUMNS,
    *,
    check_crcs: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of several partitions, one after the other, in chunks of about `chunk_bytes`."""
    pending: list[_Section] = []
    size = 0
    for section in (each for source in sources for each in _sections(source, max_bytes, check_crcs=check_crcs)):
        if pending and size + len(section.data) > chunk_bytes:
            piece = _decode_sections(pending, columns)
            if piece.num_rows:
                yield piece
            pending, size = [], 0
        pending.append(section)
        size += len(section.data)
    piece = _decode_sections(pending, columns)
    if piece.num_rows:
        yield piece


def _sections(source: PartitionBatches, max_bytes: int, *, check_crcs: bool) -> Iterator[_Section]:
    """Yield the decompressed records of each selected batch, except control batches."""
    buffer, _, _, from_offset, up_to_offset, batches = source
    view = memoryview(buffer)
    start = address(view)
    for position, header in iterate_batches(view) if batches is None else batches:
        if header.is_control or header.next_offset <= from_offset or header.base_offset >= up_to_offset:
            continue
        if check_crcs and not verify_crc(view, position, header):
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has another CRC than it says")
        data = view[position + HEADER_SIZE : position + header.size]
        if header.codec == Codec.NONE:
            section = _Section(source, header, start + position + HEADER_SIZE, data)
        else:
            plain = decompress(header.codec, data, max_bytes=max_bytes)
            section = _Section(source, header, address(plain), plain)
        if not -MAX_OFFSET + _MOST_DELTA <= header.base_offset <= MAX_OFFSET - _MOST_DELTA:
            raise CorruptBatchError(f"a batch can't begin at offset {header.base_offset}")
        # A record has at least seven bytes, so a forged count cannot allocate much memory.
        if not 0 <= header.record_count * MIN_RECORD_BYTES <= len(section.data):
            raise CorruptBatchError(
                f"the batch at offset {header.base_offset} can't have {header.record_count} records"
            )
        yield section


class _Bytes:
    """A binary column that the library fills: ends, data and nulls."""

    def __init__(self, rows: int, room: int) -> None:
        self._ends = pa.allocate_buffer(4 * (rows + 1), resizable=True)
        self._data = pa.allocate_buffer(max(room, 1), resizable=True)
        self._nulls = np.zeros(rows // 8 + 1, np.uint8)
        np.frombuffer(self._ends, np.int32)[0] = 0
        self.places = np.array([self._ends.address, self._data.address, self._nulls.ctypes.data], np.int64)

    def finish(self, kind: pa.DataType, rows: int, size: int, null_count: int) -> pa.Array:
        """Return the array of the first `rows` rows, and release the unused memory."""
        self._ends.resize(4 * (rows + 1), shrink_to_fit=True)
        self._data.resize(size, shrink_to_fit=True)
        valid = pa.py_buffer(~self._nulls) if null_count else None
        return pa.Array.from_buffers(kind, rows, [valid, self._ends, self._data], null_count)


class _Decoded(NamedTuple):
    """The columns that were decoded; `rows_ends` has the number of rows up to the end of each section."""

    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    offsets: Any
    timestamps: Any
    rows_ends: Any


_NO_COLUMN: Final = np.zeros(3, np.int64)


def _decode_sections(sections: list[_Section], columns: RecordColumns) -> pa.RecordBatch:
    room = sum(len(section.data) for section in sections)
    if room > _MAX_COLUMN_BYTES:
        raise KafkaError(ErrorCode.record_list_too_large, f"{room} bytes of records are too many for one Arrow column")
    decoded = _decode_plainly(sections, columns) if LIBRARY is None else _decode(LIBRARY, sections, columns, room)
    rows, rows_ends = len(decoded.offsets), decoded.rows_ends
    arrays: dict[str, pa.Array | None] = {"key": decoded.keys, "value": decoded.values, "headers": decoded.headers}
    for name in columns.names:
        if name == "topic":
            arrays[name] = _topics(sections, rows_ends, rows)
        elif name == "partition":
            numbers = (each.source.partition for each in sections)
            arrays[name] = _integers(pa.int32(), rows, _per_row(rows_ends, numbers))
        elif name == "offset":
            arrays[name] = _integers(pa.int64(), rows, decoded.offsets)
        elif name == "timestamp":
            arrays[name] = _integers(pa.timestamp(columns.timestamp_unit, "UTC"), rows, decoded.timestamps)
        elif name == "timestamp_type":
            types = (each.header.is_log_append_time for each in sections)
            arrays[name] = _integers(pa.int32(), rows, _per_row(rows_ends, types))
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns.schema)


def _decode(library: Library, sections: list[_Section], columns: RecordColumns, room: int) -> _Decoded:
    names, most_rows = columns.names, sum(section.header.record_count for section in sections)
    offsets, timestamps = np.empty(most_rows, np.int64), np.empty(most_rows, np.int64)
    keys = _Bytes(most_rows, room) if "key" in names else None
    values = _Bytes(most_rows, room) if "value" in names else None
    places = np.empty((most_rows, 2), np.int64) if "headers" in names else None
    result, table = np.zeros(6, np.int64), _table(sections)
    rows = library.decode(
        table.ctypes.data,
        len(table),
        1 if columns.timestamp_unit == "ms" else 1000,
        offsets.ctypes.data,
        timestamps.ctypes.data,
        (keys.places if keys else _NO_COLUMN).ctypes.data,
        (values.places if values else _NO_COLUMN).ctypes.data,
        None if places is None else places.ctypes.data,
        result.ctypes.data,
    )
    if rows < 0:
        raise _malformed(sections[-1 - rows])
    null_keys, null_values, key_size, value_size, header_count, header_bytes = result.tolist()
    return _Decoded(
        keys and keys.finish(pa.binary(), rows, key_size, null_keys),
        values and values.finish(pa.binary(), rows, value_size, null_values),
        None if places is None else _headers(library, places, rows, header_count, header_bytes),
        offsets[:rows],
        timestamps[:rows],
        table["rows_end"],
    )


def _decode_plainly(sections: list[_Section], columns: RecordColumns) -> _Decoded:
    """Do the same without the library."""
    records: list[Record] = []
    rows_ends = np.empty(len(sections), np.int64)
    for number, (source, header, _, data) in enumerate(sections):
        try:
            found = parse_records(header, bytes(data))
        except CorruptBatchError as error:
            raise _malformed(sections[number]) from error
        records += [each for each in found if source.from_offset <= each.offset < source.up_to_offset]
        rows_ends[number] = len(records)
    factor, names = 1 if columns.timestamp_unit == "ms" else 1000, columns.names
    last = _LAST_TIME // factor
    times = [each.timestamp if factor == 1 else min(max(each.timestamp, -last), last) * factor for each in records]
    return _Decoded(
        pa.array([each.key for each in records], pa.binary()) if "key" in names else None,
        pa.array([each.value for each in records], pa.binary()) if "value" in names else None,
        _headers_of(records) if "headers" in names else None,
        np.array([each.offset for each in records], np.int64),
        np.array(times, np.int64),
        rows_ends,
    )


def _headers_of(records: list[Record]) -> pa.Array:
    return pa.array([[{"key": key, "value": value} for key, value in each.headers] for each in records], HEADERS_TYPE)


def _malformed(section: _Section) -> CorruptBatchError:
    return CorruptBatchError(f"the batch at offset {section.header.base_offset} is malformed")


def _table(sections: list[_Section]) -> Any:
    table = np.empty(len(sections), _SECTION)
    for row, (source, header, place, data) in enumerate(sections):
        fixed = header.is_log_append_time
        base_timestamp = header.max_timestamp if fixed else header.base_timestamp
        table[row] = (
            place, len(data), header.record_count, header.base_offset, base_timestamp, fixed, 0, source.from_offset,
            source.up_to_offset,
        )  # fmt: skip
    return table


def _per_row(rows_ends: Any, values: Iterable[int]) -> Any:
    """Repeat each section's value for its rows; return an int32 array."""
    return np.repeat(np.fromiter(values, np.int32, len(rows_ends)), np.diff(rows_ends, prepend=0))


def _topics(sections: list[_Section], rows_ends: Any, rows: int) -> pa.Array:
    names = list(dict.fromkeys(each.source.topic for each in sections)) or [""]
    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    # `pa.array` and `pa.scalar` would import pandas where it is installed, which takes half a second.
    found = pa.Array.from_buffers(pa.string(), len(names), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
    if len(names) == 1:
        return pa.repeat(found[0], rows)
    numbers = {name: number for number, name in enumerate(names)}
    return found.take(
        _integers(pa.int32(), rows, _per_row(rows_ends, (numbers[each.source.topic] for each in sections)))
    )


def _integers(kind: pa.DataType, rows: int, data: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data[:rows])], 0)


def _headers(library: Library, places: Any, rows: int, count: int, size: int) -> pa.Array:
    list_ends = np.empty(rows + 1, np.int32)
    keys, values = _Bytes(count, size), _Bytes(count, size)
    result = np.zeros(3, np.int64)
    library.decode_headers(
        places.ctypes.data,
        rows,
        list_ends.ctypes.data,
        keys.places.ctypes.data,
        values.places.ctypes.data,
        result.ctypes.data,
    )
    null_values, key_size, value_size = result.tolist()
    names = _text(keys.finish(pa.binary(), count, key_size, 0))
    contents = values.finish(pa.binary(), count, value_size, null_values)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS_TYPE.value_type))
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(list_ends)], 0, children=[pairs])


def _text(data: pa.Array) -> pa.Array:
    """Return header keys as strings; invalid UTF-8 gets replacement characters, as in Kafka's consumer."""
    text = pa.Array.from_buffers(pa.string(), len(data), data.buffers())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([item.decode("utf-8", "replace") for item in data.to_pylist()], pa.string())
    return text
