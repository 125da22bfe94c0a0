"""Encodes Arrow columns as record batches, and computes the partitions of keys, for `send_arrow` and the Spark sink."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.kernels import LIBRARY
from odradek.model import Buffer
from odradek.partitioners.murmur2 import partition_for_key
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE
from odradek.protocol.batches.records import NO_PRODUCER_ID, encode_record, finish_batch

DEFAULT_BATCH_BYTES: Final = 1_000_000
"""Slightly below the default `max.message.bytes`."""
_NO_ENDS: Final = np.empty(0, np.int32)
_US_PER_MS: Final = {"s": (1, 1000), "ms": (1, 1), "us": (1000, 1), "ns": (1_000_000, 1)}


class EncodedBatch(NamedTuple):
    """A record batch in wire format, its number of rows, and its size before compression."""

    batch: bytearray
    record_count: int
    uncompressed_bytes: int


_SOURCE: Final = np.dtype([("ends", np.int64), ("data", np.int64), ("valid", np.int64), ("first_bit", np.int64)])
"""A column for `kernels.Library.encode`: addresses, 0 for what is missing."""


class _Bytes(NamedTuple):
    """A binary column; row i is `ends[i]` to `ends[i + 1]`. `array` keeps the buffers alive; None is no column."""

    ends: Any
    data: int = 0
    valid: int = 0
    first_bit: int = 0
    array: Any = None

    @property
    def source(self) -> tuple[int, int, int, int]:
        return self.ends.ctypes.data if len(self.ends) else 0, self.data, self.valid, self.first_bit


class ColumnEncoder:
    """Encodes rows of one Arrow record batch with the columns of `encode_columns`.

    Raises `ValueError` for a header without a key, and pyarrow's errors for other column types.
    """

    def __init__(self, batch: pa.RecordBatch, *, default_timestamp_ms: int) -> None:
        self._timestamps = _timestamps(batch, default_timestamp_ms)
        key, value = _binary(_column(batch, "key")), _binary(_column(batch, "value"))
        lists, header_key, header_value = _headers(_column(batch, "headers"))
        self._columns = (key, value, header_key, header_value, lists, _Bytes(_NO_ENDS))
        self._sources = np.array([each.source for each in self._columns], _SOURCE)
        self._records = np.empty(0, np.uint8)
        self._result = np.zeros(3, np.int64)

    def encode(
        self,
        rows: Any,
        start: int = 0,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        max_bytes: int = DEFAULT_BATCH_BYTES,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> EncodedBatch:
        """Return a batch of as many of `rows[start:]` as fit into `max_bytes` before compression, but at least one.

        `rows` is an int64 NumPy array of row numbers, which the caller has validated; `rows[start:]` is not empty.
        """
        count, size, base_timestamp, max_timestamp, records = self._fill(rows, start, max_bytes)
        buffer = bytearray(HEADER_SIZE)
        buffer += records
        finished = finish_batch(
            buffer,
            codec=codec,
            level=level,
            count=count,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return EncodedBatch(finished, count, HEADER_SIZE + size)

    def _fill(self, rows: Any, start: int, max_bytes: int) -> tuple[int, int, int, int, Buffer]:
        """Return the number of rows that were encoded, their size, first and largest timestamp, and their bytes."""
        max_bytes -= HEADER_SIZE
        if LIBRARY is None:
            return self._fill_plainly(rows, start, max_bytes)
        if len(self._records) < max_bytes:
            self._records = np.empty(max_bytes, np.uint8)
        count = 0
        while not count:
            count = LIBRARY.encode(
                rows.ctypes.data,
                len(rows),
                start,
                self._timestamps.ctypes.data,
                self._sources.ctypes.data,
                self._records.ctypes.data,
                len(self._records),
                max_bytes,
                self._result.ctypes.data,
            )
            if not count:  # the first row is larger than all room
                self._records = np.empty(int(self._result[0]), np.uint8)
        size, base_timestamp, max_timestamp = self._result.tolist()
        return count, size, base_timestamp, max_timestamp, self._records.data[:size]

    def _fill_plainly(self, rows: Any, start: int, max_bytes: int) -> tuple[int, int, int, int, Buffer]:
        """Do the same without the library."""
        key, value, _, _, lists, _ = (each.array for each in self._columns)
        key, value = (None if each is None else each.cast(pa.binary()) for each in (key, value))
        records, count = bytearray(), 0
        base_timestamp = max_timestamp = int(self._timestamps[rows[start]])
        for row in rows[start:].tolist():
            timestamp = int(self._timestamps[row])
            headers = [] if lists is None else lists[row].as_py() or []
            record = encode_record(
                timestamp - base_timestamp,
                count,
                None if key is None else key[row].as_py(),
                None if value is None else value[row].as_py(),
                [(_text(each["key"]), each["value"]) for each in headers],
            )
            if count and len(records) + len(record) > max_bytes:
                break
            records += record
            count += 1
            max_timestamp = max(max_timestamp, timestamp)
        return count, len(records), base_timestamp, max_timestamp, records


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()


def encode_columns(
    batch: pa.RecordBatch,
    *,
    default_timestamp_ms: int,
    rows: Any = None,
    codec: Codec = Codec.NONE,
    max_bytes: int = DEFAULT_BATCH_BYTES,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> Iterator[EncodedBatch]:
    """Yield the rows of `batch` as record batches of at most `max_bytes` each, before compression.

    All columns are optional: `key` and `value` (binary or string), `timestamp` (any unit; null becomes
    `default_timestamp_ms`) and `headers` (list of struct of `key` and `value`). Other columns are ignored. `rows` is a
    NumPy array of the row numbers to encode, in order; None for all. A row larger than `max_bytes` becomes its own
    batch. With a `base_sequence`, each batch continues the sequence of the previous one.

    Raises `ValueError` for a header without a key or an invalid row number, and pyarrow's errors for other types.
    """
    wanted = np.arange(batch.num_rows, dtype=np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
    if len(wanted) and not (wanted.min() >= 0 and wanted.max() < batch.num_rows):
        raise ValueError(f"row numbers are 0 … {batch.num_rows - 1}")
    encoder = ColumnEncoder(batch, default_timestamp_ms=default_timestamp_ms)
    start = 0
    while start < len(wanted):
        encoded = encoder.encode(
            wanted,
            start,
            codec=codec,
            max_bytes=max_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        yield encoded
        start += encoded.record_count
        if base_sequence >= 0:
            # Sequences wrap to 0 after the greatest int32, as in Kafka's DefaultRecordBatch.
            base_sequence = (base_sequence + encoded.record_count) & 0x7FFFFFFF


def key_partitions(keys: pa.Array, partition_count: int) -> Any:
    """Return each key's partition by Kafka's rule, `(murmur2(key) & 0x7fffffff) % partition_count`; -1 for null keys.

    The result is an int32 NumPy array; strings are hashed as UTF-8. Raises `ValueError` for a count below 1.
    """
    if not 0 < partition_count < 1 << 31:
        raise ValueError(f"keys cannot be placed on {partition_count} partitions")
    column = _binary(keys)
    partitions = np.empty(len(keys), np.int32)
    if LIBRARY is None:
        for row, key in enumerate(column.array.cast(pa.binary()).to_pylist()):
            partitions[row] = -1 if key is None else partition_for_key(key, partition_count)
    else:
        source = np.array([column.source], _SOURCE)
        LIBRARY.murmur2(source.ctypes.data, len(keys), partition_count, partitions.ctypes.data)
    return partitions


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _binary(array: pa.Array | None) -> _Bytes:
    if array is None:
        return _Bytes(_NO_ENDS)
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(pa.binary())
    valid, ends, data = array.buffers()
    return _Bytes(
        _ends(ends, array),
        data.address if data else 0,
        valid.address if valid and array.null_count else 0,
        array.offset,
        array,
    )


def _ends(buffer: pa.Buffer | None, array: pa.Array) -> Any:
    """Return the start of each row of an array or slice, and the end of the last row."""
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1]


def _headers(array: pa.Array | None) -> tuple[_Bytes, _Bytes, _Bytes]:
    """Return the header column as `(lists, keys, values)`."""
    if array is None:
        return _Bytes(_NO_ENDS), _Bytes(_NO_ENDS), _Bytes(_NO_ENDS)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    pairs = array.values
    keys, values = pairs.field("key"), pairs.field("value")
    if pairs.null_count or keys.null_count:
        flat = array.flatten()
        if flat.null_count or flat.field("key").null_count:
            raise ValueError("a header must have a key")
    valid, ends, *_ = array.buffers()
    lists = _Bytes(_ends(ends, array), 0, valid.address if valid and array.null_count else 0, array.offset, array)
    return lists, _binary(keys), _binary(values)


def _timestamps(batch: pa.RecordBatch, default_ms: int) -> Any:
    """Return every row's timestamp in ms."""
    column = _column(batch, "timestamp")
    if column is None:
        return np.full(batch.num_rows, default_ms, np.int64)
    if pa.types.is_timestamp(column.type):
        divisor, factor = _US_PER_MS[column.type.unit]
    else:
        divisor, factor = 1, 1
    numbers = column.cast(pa.int64())
    if numbers.null_count:
        # The least int64 stands for null until the end of this function: no timestamp is that early.
        numbers = numbers.fill_null(np.iinfo(np.int64).min)
    data = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]
    plain = data // divisor * factor
    if column.null_count:
        plain[data == np.iinfo(np.int64).min] = default_ms
    return np.ascontiguousarray(plain)
