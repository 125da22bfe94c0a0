"""Decodes the records of many batches into Arrow's buffers, compiled by numba, without creating objects.

All positions are addresses. Before a byte is read, it is checked to be in its record, and the record in its batch: a
truncated or overlong varint sets the position to `_LOST`, after every end, so that the next comparison fails.
"""

from typing import Any, Final

import numba
import numpy as np

from odradek.columns.memory import copy, load, store, store_int32

# Columns of the table, which has one row per batch.
SECTION: Final = 0
SECTION_SIZE: Final = 1
RECORD_COUNT: Final = 2
BASE_OFFSET: Final = 3
BASE_TIMESTAMP: Final = 4
FIXED_TIMESTAMP: Final = 5
"""1 if every record has the batch's maximum timestamp, which is then in `BASE_TIMESTAMP`."""
ROWS_END: Final = 6
"""Written by `decode`: the number of rows up to the end of this batch."""
FIRST_WANTED: Final = 7
"""Records before this offset are skipped."""
FIRST_UNWANTED: Final = 8
"""Records from this offset on are skipped."""
TABLE_WIDTH: Final = 9

MIN_RECORD_BYTES: Final = 7

_LOST: Final = 1 << 62
_LOGICAL_SHIFT: Final = (1 << 63) - 1
_MOST_DELTA: Final = 1 << 31
_LAST_TIME: Final = (1 << 63) - 1


def njit(function: Any) -> Any:
    """Compile a function at its first call and cache the code on disk, if there is a writable directory."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # In some containers neither the package's directory nor the user's cache is writable.
        return numba.njit(nogil=True)(function)


@njit
def varint(position: int, end: int) -> tuple[int, int]:
    """Return `(value, position after it)` of a zigzag varint; the position is `_LOST` if invalid or beyond `end`."""
    if position >= end:
        return 0, _LOST
    byte = load(position)
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        if position >= end:
            return 0, _LOST
        byte = load(position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, _LOST
            return ((value >> 1) & _LOGICAL_SHIFT) ^ -(value & 1), position
    return 0, _LOST


@njit
def record_fields(position: int, end: int) -> Any:
    """Return fields of the record at `position`; `end` is 0 if the record is malformed.

    `(end, timestamp delta, address of the offset delta, offset delta, address of the key, key length, address of the
    value, value length)`
    """
    nothing = (0, 0, 0, 0, 0, 0, 0, 0)
    size, position = varint(position, end)
    if size < MIN_RECORD_BYTES - 1 or size > end - position:
        return nothing
    record_end = position + size
    timestamp_delta, rest = varint(position + 1, record_end)
    offset_delta, position = varint(rest, record_end)
    key_length, key_at = varint(position, record_end)
    if key_length > record_end - key_at:
        return nothing
    value_length, value_at = varint(key_at + max(key_length, 0), record_end)
    # At least one byte must be left, for the number of headers.
    if value_length >= record_end - value_at or value_at >= record_end:
        return nothing
    return record_end, timestamp_delta, rest, offset_delta, key_at, key_length, value_at, value_length


@njit
def _time(base: int, delta: int, factor: int) -> tuple[int, bool]:
    """Return `(time * factor, whether the time in ms overflows 64 bits)`; the product is limited to 64 bits."""
    time = base + delta
    is_beyond = ((base ^ time) & (delta ^ time)) < 0  # the sum's sign differs from both operands
    if factor > 1:
        last = _LAST_TIME // factor
        time = min(max(time, -last), last) * factor
    return time, is_beyond


@njit
def _append(column: Any, row: int, size: int, place: int, length: int) -> tuple[int, int]:
    """Copy a row's bytes to a column; return `(new size, nulls added)`.

    A column is the addresses `(ends, data, bitmap of nulls)`, because arrays would be reference-counted at every call,
    which is slow.
    """
    ends, data, nulls = column
    added = 0
    if length < 0:
        byte = nulls + (row >> 3)
        store(byte, load(byte) | 1 << (row & 7))
        added = 1
    else:
        copy(data + size, place, length)
        size += length
    store_int32(ends + 4 * row + 4, size)
    return size, added


@njit
def decode(
    table: Any,
    time_factor: int,
    offsets: Any,
    timestamps: Any,
    keys: Any,
    values: Any,
    header_places: Any,
    result: Any,
) -> int:
    """Decode the batches in `table`; return the number of rows, or -1 - b if batch b is malformed.

    `keys` and `values` are columns as in `_append`, with room for all bytes of the sections; their addresses are 0 if
    the column is not selected. `header_places`, if not empty, receives the start and end address of each row's headers.
    `result` receives the numbers of null keys, null values, bytes of keys, bytes of values, headers, bytes of headers.
    """
    row = key_size = value_size = null_keys = null_values = header_count = header_bytes = added = 0
    want_headers = header_places.shape[0] > 0
    for batch in range(table.shape[0]):
        position = table[batch, SECTION]
        first_wanted, first_unwanted = table[batch, FIRST_WANTED], table[batch, FIRST_UNWANTED]
        end = position + table[batch, SECTION_SIZE]
        for _ in range(table[batch, RECORD_COUNT]):
            fields = record_fields(position, end)
            position, timestamp_delta, _rest, offset_delta, key_at, key_length, value_at, value_length = fields
            if not position:
                return -1 - batch
            offset = table[batch, BASE_OFFSET] + offset_delta
            delta = 0 if table[batch, FIXED_TIMESTAMP] else timestamp_delta
            timestamp, is_beyond = _time(table[batch, BASE_TIMESTAMP], delta, time_factor)
            if is_beyond or offset_delta < -_MOST_DELTA or offset_delta >= _MOST_DELTA:
                return -1 - batch
            if offset < first_wanted or offset >= first_unwanted:
                continue
            offsets[row] = offset
            timestamps[row] = timestamp
            if keys[1]:
                key_size, added = _append(keys, row, key_size, key_at, key_length)
                null_keys += added
            if values[1]:
                value_size, added = _append(values, row, value_size, value_at, value_length)
                null_values += added
            if want_headers:
                headers_at = value_at + max(value_length, 0)
                count, inside = varint(headers_at, position)
                # A header takes two bytes at least, so a forged count cannot allocate much memory.
                if count < 0 or count > (position - inside) >> 1:
                    return -1 - batch
                header_places[row, 0] = headers_at
                header_places[row, 1] = position
                header_count += count
                header_bytes += position - inside
            row += 1
        if position != end:
            return -1 - batch
        table[batch, ROWS_END] = row
    result[:] = (null_keys, null_values, key_size, value_size, header_count, header_bytes)
    return row


@njit
def decode_headers(header_places: Any, rows: int, list_ends: Any, keys: Any, values: Any, result: Any) -> int:
    """Decode the headers of all rows; return their number, or -1 - r if those of row r are malformed.

    `keys` and `values` are columns as in `_append`. `result` receives the numbers of null values, bytes of keys, bytes
    of values.
    """
    header = key_size = value_size = null_values = added = 0
    list_ends[0] = 0
    for row in range(rows):
        end = header_places[row, 1]
        count, position = varint(header_places[row, 0], end)
        for _ in range(count):
            length, position = varint(position, end)
            if length < 0 or length > end - position:
                return -1 - row
            key_size, added = _append(keys, header, key_size, position, length)
            length, position = varint(position + length, end)
            if length > end - position or position > end:
                return -1 - row
            value_size, added = _append(values, header, value_size, position, length)
            null_values += added
            position += max(length, 0)
            header += 1
        if position != end:
            return -1 - row
        list_ends[row + 1] = header
    result[0], result[1], result[2] = null_values, key_size, value_size
    return header


EMPTY_PLACES: Final = np.empty((0, 2), np.int64)
