"""Encodes and decodes a batch's records, one Python object each, for clients and internal topics.

```
record   length varint | attributes int8 | timestamp delta varlong | offset delta varint
         key length varint, key | value length varint, value | header count varint, headers     (a length of -1 is null)
header   key length varint, key (UTF-8) | value length varint, value
```
Deltas are relative to the batch's `base_timestamp` and `base_offset`. Encoding takes most of a producer's time.
`odradek.columns` does the same without an object per record.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, cast

from odradek.kernels import LIBRARY, ROW, Library, address
from odradek.model import Buffer
from odradek.protocol.batches.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from odradek.protocol.batches.record_batch import (
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    write_header,
)
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import VARINTS, encode_varint, read_varint, varint

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""`(timestamp in ms, key, value, headers)`."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
MAX_RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Limit of a record's bytes beside its key, its value and its headers."""
_NULL: Final = encode_varint(-1)
_NO_ATTRIBUTES: Final = b"\x00"
NO_HEADERS: Final = b"\x00"
"""The encoded headers of a record without any."""
_TABLE_SIZE: Final = len(VARINTS)
_INT_MAX: Final = (1 << 31) - 1
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_FEW: Final = 4
"""For so many records Python is as fast as a call of the library."""
_MIN_RECORD_BYTES: Final = 7
_MOST_DELTA: Final = 1 << 31
"""Limit of offset deltas, which have 32 bits."""
_USUAL_TIMES: Final = range(_LONG_MIN + 64, _LONG_MAX - 64)
"""Base timestamps that a delta of one varint byte cannot make exceed 64 bits."""


class Record(NamedTuple):
    """A record as a consumer sees it. `timestamp` is in ms, -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_rows(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[bytes],
    size: int,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Return a batch of at least one record, given in columns; `headers` are results of `encode_headers`.

    `size` is the batch's uncompressed size in bytes, with its header.
    """
    count = len(timestamps)
    if LIBRARY is None or count <= _FEW or size > _INT_MAX:
        buffer = bytearray(HEADER_SIZE)
        records = zip(timestamps, keys, values, headers, strict=True)
        base_timestamp, max_timestamp, _ = _encode_records(buffer, records)
        assert len(buffer) == size
    else:
        buffer = bytearray(size)
        columns = keys, values, (), (), (), () if headers.count(NO_HEADERS) == count else headers
        base_timestamp, max_timestamp = _encode_columns(LIBRARY, timestamps, columns, memoryview(buffer)[HEADER_SIZE:])
    return finish_batch(
        buffer,
        codec=codec,
        level=level,
        count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def _encode_columns(
    library: Library, timestamps: Sequence[int], columns: Iterable[Sequence[bytes | None]], output: memoryview
) -> tuple[int, int]:
    """Fill `output` with records; return the first timestamp and the largest."""
    count, room = len(timestamps), len(output)
    sources = [_Column(each) for each in columns]
    numbers = _array("q", [number for each in sources for number in each.source])
    times, result = _array("q", timestamps), _array("q", (0, 0, 0))
    places = address(times), address(numbers), address(output)
    done = library.encode(None, count, 0, *places, room, room, address(result))
    size, base_timestamp, max_timestamp = result.cast("q")
    assert (done, size) == (count, room), "the size of a batch is known before it is encoded"
    return base_timestamp, max_timestamp


def _array(kind: str, numbers: Iterable[int]) -> memoryview:
    return memoryview(array(kind, numbers)).cast("B")


class _Column:
    """Rows for `kernels.Library.encode`; `source` has addresses, which are valid while the column lives."""

    def __init__(self, rows: Sequence[bytes | None]) -> None:
        nulls = rows.count(None)
        self.source = (0, 0, 0, 0)
        if nulls < len(rows):
            filled = [row or b"" for row in rows] if nulls else cast("Sequence[bytes]", rows)
            bits = "".join("0" if row is None else "1" for row in reversed(rows)) if nulls else "0"
            self._valid = int(bits, 2).to_bytes((len(rows) + 7) // 8, "little")
            self._ends = _array("i", accumulate(map(len, filled), initial=0))
            self._data = b"".join(filled)
            self.source = (address(self._ends), address(self._data), address(self._valid) if nulls else 0, 0)


def encode_batch(
    records: Iterable[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """Return a batch of `records` with consecutive offsets from `base_offset`.

    A batch without records takes one offset.
    """
    buffer = bytearray(HEADER_SIZE)
    encoded = (
        (time, key, value, encode_headers(headers) if headers else NO_HEADERS) for time, key, value, headers in records
    )
    base_timestamp, max_timestamp, count = _encode_records(buffer, encoded)
    return finish_batch(
        buffer,
        codec=codec,
        count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        leader_epoch=leader_epoch,
    )


def finish_batch(
    buffer: bytearray,
    *,
    codec: Codec,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """Compress the `count` encoded records after the first 61 bytes of `buffer`, and write the batch header there.

    Return the batch, which is `buffer` itself without compression.
    """
    if codec != Codec.NONE:
        compressed = compress(codec, memoryview(buffer)[HEADER_SIZE:], level=level)
        buffer = bytearray(HEADER_SIZE)
        buffer += compressed
    attributes = int(codec) | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    write_header(buffer, header)
    return buffer


def record_size_bound(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the encoded record's size; Kafka's clients compare it with `max.request.size`."""
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """Encode one record, including its length field."""
    if key is None:
        key_length, key = _NULL, b""
    else:
        key_length = VARINTS[n] if (n := len(key)) < _TABLE_SIZE else encode_varint(n)
    if value is None:
        value_length, value = _NULL, b""
    else:
        value_length = VARINTS[n] if (n := len(value)) < _TABLE_SIZE else encode_varint(n)
    body = b"".join(
        (
            _NO_ATTRIBUTES,
            VARINTS[timestamp_delta] if 0 <= timestamp_delta < _TABLE_SIZE else encode_varint(timestamp_delta),
            VARINTS[offset_delta] if offset_delta < _TABLE_SIZE else encode_varint(offset_delta),
            key_length,
            key,
            value_length,
            value,
            encode_headers(headers) if headers else NO_HEADERS,
        )
    )
    return (VARINTS[n] if (n := len(body)) < _TABLE_SIZE else encode_varint(n)) + body


def _encode_records(
    buffer: bytearray, records: Iterable[tuple[int, bytes | None, bytes | None, bytes]]
) -> tuple[int, int, int]:
    """Append all records, with encoded headers; return `(base timestamp, max timestamp, count)`.

    Inlines `encode_record` for speed.
    """
    base_timestamp = max_timestamp = NO_TIMESTAMP
    table, size, join, zero = VARINTS, _TABLE_SIZE, b"".join, _NO_ATTRIBUTES
    count = 0
    for timestamp, key, value, headers in records:
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if not count:
            base_timestamp = max_timestamp = timestamp
        delta = timestamp - base_timestamp
        if key is None:
            key_length, key = _NULL, b""
        else:
            key_length = table[n] if (n := len(key)) < size else encode_varint(n)
        if value is None:
            value_length, value = _NULL, b""
        else:
            value_length = table[n] if (n := len(value)) < size else encode_varint(n)
        body = join(
            (
                zero,
                table[delta] if 0 <= delta < size else encode_varint(delta),
                table[count] if count < size else encode_varint(count),
                key_length,
                key,
                value_length,
                value,
                headers,
            )
        )
        buffer += table[n] if (n := len(body)) < size else encode_varint(n)
        buffer += body
        count += 1
    return base_timestamp, max_timestamp, count


def encode_headers(headers: Headers) -> bytes:
    """Encode a record's headers with their number."""
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (varint(len(value)), value)
    return b"".join(parts)


def decode_records(batch: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Decode the records of the batch at `position`, including control records, without checking the CRC.

    Raises `CorruptBatchError` if the batch is malformed, or its compressed records exceed `max_bytes` decompressed.
    """
    return parse_records(*open_batch(batch, position, max_bytes=max_bytes))


def open_batch(
    batch: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[BatchHeader, bytes]:
    """Return the header and the decompressed records of the batch at `position`, as `decode_records` does."""
    header = read_header(batch, position)
    end = position + header.size
    if header.magic != MAGIC or header.size < HEADER_SIZE or end > len(batch):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} is cut, or is of another format")
    section = memoryview(batch)[position + HEADER_SIZE : end]
    return header, bytes(decompress(header.codec, section, max_bytes=max_bytes))


def record_rows(header: BatchHeader, data: bytes) -> Iterator[tuple[int, ...]] | None:
    """Return `kernels.ROW` of each of a batch's records; None if it has few, is malformed, or the library is missing.

    Rows and their slices cost a quarter of what Python's own walk costs; `headers_at` returns the headers of a row.
    """
    count = header.record_count
    if LIBRARY is None or not _FEW < count <= len(data) // _MIN_RECORD_BYTES:
        return None
    if not -_LONG_MAX + _MOST_DELTA <= header.base_offset <= _LONG_MAX - _MOST_DELTA:
        return None
    is_fixed = header.is_log_append_time
    rows = bytearray(ROW.size * count)
    base_timestamp = header.max_timestamp if is_fixed else header.base_timestamp
    found = LIBRARY.rows(data, len(data), count, header.base_offset, base_timestamp, is_fixed, address(rows))
    return None if found < 0 else ROW.iter_unpack(rows)


def headers_at(data: bytes, position: int) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers that a row of `record_rows` has the place of."""
    return _parse_headers(data, position)[0]


def parse_records(header: BatchHeader, data: bytes) -> list[Record]:
    """Parse an uncompressed record section. Raises `CorruptBatchError` if it is not exactly `record_count` records."""
    rows = record_rows(header, data)
    if rows is not None:
        new = tuple.__new__
        return [
            new(
                Record,
                (
                    offset,
                    timestamp,
                    None if key_at < 0 else data[key_at:key_end],
                    None if value_at < 0 else data[value_at:value_end],
                    () if headers < 0 else headers_at(data, headers),
                ),
            )
            for offset, timestamp, key_at, key_end, value_at, value_end, headers in rows
        ]
    records: list[Record] = []
    if not 0 <= header.record_count <= len(data):
        raise CorruptBatchError(f"a batch of {len(data)} bytes can't have {header.record_count} records")
    if not -_LONG_MAX + _MOST_DELTA <= header.base_offset <= _LONG_MAX - _MOST_DELTA:
        raise CorruptBatchError(f"a batch can't begin at offset {header.base_offset}")
    try:
        position = _parse_records(header, data, records)
    except IndexError as error:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} is malformed: {error}") from error
    if position != len(data):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} has bytes after its last record")
    if header.base_timestamp not in _USUAL_TIMES:
        for record in records:
            if not _LONG_MIN <= record.timestamp <= _LONG_MAX:
                raise CorruptBatchError(f"the time of the record at offset {record.offset} is {record.timestamp}")
    return records


def _parse_records(header: BatchHeader, data: bytes, records: list[Record]) -> int:
    """Append all records to `records` and return the position after them; short varints are read inline for speed."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    no_headers: tuple[tuple[str, bytes | None], ...] = ()
    new, append = tuple.__new__, records.append
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        # The byte at `position` is the record's attributes, which are unused.
        if (n := data[position + 1]) < 0x80:
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
            position += 2
        else:
            n, position = read_varint(data, position + 1)
            timestamp = base_timestamp + n
            if fixed_timestamp is None and not _LONG_MIN <= timestamp <= _LONG_MAX:
                raise CorruptBatchError(f"a record's time is {timestamp}")
        if (n := data[position]) < 0x80:
            offset = base_offset + ((n >> 1) ^ -(n & 1))
            position += 1
        else:
            n, position = read_varint(data, position)
            offset = base_offset + n
            if not -_MOST_DELTA <= n < _MOST_DELTA:
                raise CorruptBatchError(f"a record's offset is {offset}, in a batch that begins at {base_offset}")
        if (n := data[position]) < 0x80:
            n = (n >> 1) ^ -(n & 1)
            position += 1
        else:
            n, position = read_varint(data, position)
        # Any negative length is null, as in Kafka.
        key = None if n < 0 else data[position : (position := position + n)]
        if (n := data[position]) < 0x80:
            n = (n >> 1) ^ -(n & 1)
            position += 1
        else:
            n, position = read_varint(data, position)
        value = None if n < 0 else data[position : (position := position + n)]
        headers = no_headers
        if data[position] == 0:
            position += 1
        else:
            headers, position = _parse_headers(data, position)
        if position != end:
            raise CorruptBatchError(f"the record at offset {offset} is not as long as it says")
        if fixed_timestamp is not None:
            timestamp = fixed_timestamp
        append(new(Record, (offset, timestamp, key, value, headers)))
    return position


def _parse_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read length-prefixed bytes; any negative length is null, as in Kafka."""
    n, position = read_varint(data, position)
    if n < 0:
        return None, position
    end = position + n
    return data[position:end], end


def _parse_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data):
        raise CorruptBatchError(f"a record can't have {count} headers")
    headers = []
    for _ in range(count):
        name, position = _parse_bytes(data, position)
        if name is None:
            raise CorruptBatchError("a record header has no key")
        value, position = _parse_bytes(data, position)
        # Invalid UTF-8 in a header's key becomes replacement characters, as in Kafka's consumer.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


__all__ = [
    "MAX_RECORD_OVERHEAD",
    "NO_HEADERS",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Headers",
    "NewRecord",
    "Record",
    "decode_records",
    "encode_batch",
    "encode_headers",
    "encode_record",
    "encode_rows",
    "finish_batch",
    "parse_records",
    "record_size_bound",
]
