"""Validates Arrow data for `send_arrow`, columns and rows, before anything is sent."""

from operator import index
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.columns.encode import ColumnEncoder, key_partitions
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.records import record_size_bound

PRODUCE_COLUMNS: Final = ("key", "value", "headers", "timestamp", "partition")
_RECORD_OVERHEAD: Final = record_size_bound(None, None)
_HEADER_OVERHEAD: Final = record_size_bound(None, None, [("", None)]) - _RECORD_OVERHEAD
_LATEST: Final = (1 << 63) - 1


def record_batches(data: Any) -> list[pa.RecordBatch]:
    """Convert a table, a record batch, or an object with Arrow's PyCapsule interface to record batches.

    Chunks are combined. Raises `TypeError` for other objects.
    """
    if isinstance(data, pa.RecordBatch):
        return [data]
    if not isinstance(data, pa.Table):
        if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
            raise TypeError(f"rows to produce are an Arrow table or record batch, not {type(data).__name__}")
        data = pa.table(data)
    batches: list[pa.RecordBatch] = data.combine_chunks().to_batches()
    return batches or [
        pa.RecordBatch.from_arrays([pa.array([], field.type) for field in data.schema], data.schema.names)
    ]


class ProduceRows:
    """The validated rows of one Arrow record batch, all for `partition` if given.

    Raises `KafkaError` for an invalid column or row: INVALID_RECORD, INVALID_TIMESTAMP, or MESSAGE_TOO_LARGE above
    `max_record_bytes`. Row numbers in messages start at `first_row`.
    """

    def __init__(
        self, batch: pa.RecordBatch, *, first_row: int = 0, partition: int | None = None, max_record_bytes: int
    ) -> None:
        self.first_row = first_row
        self.count: int = batch.num_rows
        _check_names(batch.schema.names)
        columns = {name: _checked(batch.column(name), name) for name in batch.schema.names}
        self._batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        self._partitions = self._checked_partitions(columns.get("partition"), partition)
        self._check_timestamps(columns.get("timestamp"))
        self.sizes = self._checked_sizes(columns, max_record_bytes)

    @property
    def has_partitions(self) -> bool:
        """Return whether the partition of every row is given."""
        return self._partitions is not None

    @property
    def partition_numbers(self) -> set[int]:
        """Return the distinct given partitions; empty if none are given."""
        return set() if self._partitions is None else set(np.unique(self._partitions).tolist())

    def partitions(self, topic: str, numbers: set[int]) -> Any:
        """Return the given partition of each row, an int64 array; `numbers` are the partitions of `topic`.

        Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION for a partition that is not in `numbers`.
        """
        assert self._partitions is not None
        wrong = ~np.isin(self._partitions, list(numbers))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"row {self.first_row + row} names partition {self._partitions[row]} of topic {topic!r}, which has "
                f"{len(numbers)}",
            )
        return self._partitions

    def key_partitions(self, partition_count: int) -> Any:
        """Return the partition of each row's key by Kafka's hash, an int64 array; -1 for a row without a key."""
        if "key" not in self._batch.schema.names:
            return np.full(self.count, -1, np.int64)
        return key_partitions(self._batch.column("key"), partition_count).astype(np.int64)

    def keys_and_values(self) -> list[tuple[bytes | None, bytes | None]]:
        nulls: list[bytes | None] = [None] * self.count
        names = self._batch.schema.names
        keys, values = (self._batch.column(name).to_pylist() if name in names else nulls for name in ("key", "value"))
        return list(zip(keys, values, strict=True))

    def encoder(self, *, default_timestamp_ms: int) -> ColumnEncoder:
        """Return an encoder of these rows, which are numbered from 0."""
        return ColumnEncoder(self._batch, default_timestamp_ms=default_timestamp_ms)

    def _checked_partitions(self, column: pa.Array | None, partition: int | None) -> Any:
        if column is None:
            return None if partition is None else np.full(self.count, index(partition), np.int64)
        if partition is not None:
            raise _invalid("a partition is given for all rows, and there is a column partition: leave one of them out")
        if column.null_count:
            row = self.first_row + _first(column.is_null())
            raise _invalid(
                f"row {row} has no partition: leave the column out, and rows go to the partitions of their keys"
            )
        return column.to_numpy(zero_copy_only=False)

    def _check_timestamps(self, column: pa.Array | None) -> None:
        if column is None:
            return
        numbers = column.cast(pa.int64())
        latest = _LATEST // 1000 if column.type == pa.timestamp("s", getattr(column.type, "tz", None)) else _LATEST
        wrong = pc.or_(pc.less(numbers, 0), pc.greater(numbers, latest)).fill_null(False)
        if pc.any(wrong).as_py():
            row = self.first_row + _first(wrong)
            raise KafkaError(ErrorCode.invalid_timestamp, f"row {row} has a timestamp before 1970 or after 2^63 ms")

    def _checked_sizes(self, columns: dict[str, pa.Array], max_record_bytes: int) -> Any:
        """Return an upper bound of each row's encoded size in bytes. Raises `KafkaError` if one is too large."""
        sizes = np.full(self.count, _RECORD_OVERHEAD, np.int64)
        for name in ("key", "value"):
            if name in columns:
                sizes += _lengths(columns[name])
        if "headers" in columns:
            sizes += self._header_sizes(columns["headers"])
        if self.count and (largest := int(sizes.max())) > max_record_bytes:
            row = self.first_row + int(sizes.argmax())
            raise KafkaError(
                ErrorCode.message_too_large,
                f"row {row} is a record of {largest:,} bytes, over max_request_size ({max_record_bytes:,})",
            )
        return sizes

    def _header_sizes(self, headers: pa.Array) -> Any:
        ends = np.cumsum(pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False))
        pairs = headers.flatten()
        keys, values = pc.struct_field(pairs, "key"), pc.struct_field(pairs, "value")
        if keys.null_count:
            row = self.first_row + int(np.searchsorted(ends, _first(keys.is_null()), side="right"))
            raise _invalid(f"row {row} has a header without a key")
        each = _HEADER_OVERHEAD + _lengths(keys.cast(pa.binary())) + _lengths(values.cast(pa.binary()))
        totals = np.concatenate(([0], np.cumsum(each)))[np.concatenate(([0], ends))]
        return np.diff(totals)


def _check_names(names: list[str]) -> None:
    allowed = ", ".join(PRODUCE_COLUMNS)
    for name in names:
        if name not in PRODUCE_COLUMNS:
            raise _invalid(f"there is no column {name!r} of rows to produce: drop it; columns are {allowed}")
        if names.count(name) > 1:
            raise _invalid(f"there are {names.count(name)} columns {name!r}")
    if not {"key", "value"} & set(names):
        raise _invalid("rows to produce need a column key or value")


def _checked(column: pa.Array, name: str) -> pa.Array:
    try:
        return _CHECKS[name](column, name)
    except pa.ArrowException as error:  # for example more than 2 GiB in one batch
        raise _invalid(f"column {name!r} of type {column.type} cannot be sent: {error}") from error


def _bytes_column(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (_is_bytes(column.type) or pa.types.is_null(column.type)):
        raise _wrong_type(name, column.type, "binary or string")
    return column.cast(pa.binary())


def _headers_column(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(column.type):
        return column.cast(_HEADERS)
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    pair = column.type.value_type if is_list else None
    if pair is None or not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        raise _wrong_type(name, column.type, str(_HEADERS))
    if not (
        _is_bytes(pair.field("key").type)
        and (_is_bytes(pair.field("value").type) or pa.types.is_null(pair.field("value").type))
    ):
        raise _wrong_type(name, column.type, str(_HEADERS))
    if not pa.types.is_null(pair.field("value").type):
        return column
    # The order of fields stays: before release 21, pyarrow casts no struct to one with another order.
    return column.cast(pa.list_(pa.struct([_HEADERS.value_type.field(field.name) for field in pair])))


def _timestamp_column(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_null(kind)):
        raise _wrong_type(name, kind, "timestamp, or int64 in ms")
    return column.cast(pa.int64()) if pa.types.is_null(kind) else column


def _partition_column(column: pa.Array, name: str) -> pa.Array:
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise _wrong_type(name, column.type, "int32")
    return column.cast(pa.int64(), safe=False)


_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_CHECKS: Final = {
    "key": _bytes_column,
    "value": _bytes_column,
    "headers": _headers_column,
    "timestamp": _timestamp_column,
    "partition": _partition_column,
}


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_binary,
        pa.types.is_string,
        pa.types.is_large_binary,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _lengths(column: pa.Array) -> Any:
    return pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _first(mask: pa.Array) -> int:
    """Return the position of the first true value."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def _wrong_type(name: str, kind: pa.DataType, wanted: str) -> KafkaError:
    return _invalid(f"column {name!r} is of type {kind}, not {wanted}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
