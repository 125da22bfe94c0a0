"""Compacts the record batches of a buffer; compiled by numba.

`broker.log.cleaner.record_filter` has the rules, and applies them in Python;
`broker.log.cleaner.compiled_record_filter` calls the last three functions, through `compaction_code`, once each per
buffer of batches:

```
buffer ── find_batches ──► one BATCH row for each batch ── index_keys ──► SLOT rows, one for each key
                                    '──── keep_records ──► the batches that stay, and one KEPT row for each of them
```
Positions are addresses, with bounds checked as in `decode_kernel`. Slots are found by double hashing. Digests are
SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), keyed with random bytes.
"""

from typing import Any, Final

import numba
import numpy as np
from numba import carray, types

from odradek.columns.compaction_rows import BATCH, DONE, FULL, KEPT, MIN_RECORD_BYTES, RESULT, SLOT
from odradek.columns.decode_kernel import njit, record_fields
from odradek.columns.encode_kernel import varint_size, write_varint
from odradek.columns.memory import (
    copy,
    load,
    load_word,
    read_int16,
    read_int32,
    read_int64,
    read_uint32,
    store,
    write_int16,
    write_int32,
    write_int64,
)
from odradek.protocol.batches.record_batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)

TIMESTAMP_BOUND: Final = 1 << 62
"""Limit of timestamps and deltas, so that their differences fit into 64 bits."""

# Byte offsets of fields in a batch header (`protocol.batches.record_batch`).
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA = 8, 16, 17, 21, 23
_BASE_TIME, _MAX_TIME, _COUNT = 27, 35, 57
_OTHER: Final = CODEC_MASK | CONTROL | TRANSACTIONAL
_STAYS_EMPTY: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_MALFORMED: Final = -1
_NULL: Final = -1
_U = np.uint64
_13, _16, _17, _21, _32 = _U(13), _U(16), _U(17), _U(21), _U(32)
_43, _47, _48, _51, _56 = _U(43), _U(47), _U(48), _U(51), _U(56)
_INIT0, _INIT1 = _U(0x736F6D6570736575), _U(0x646F72616E646F6D)
_INIT2, _INIT3 = _U(0x6C7967656E657261), _U(0x7465646279746573)
_WIDE, _SECOND = _U(0xEE), _U(0xDD)
_FREE, _ONE, _BYTE = _U(0), _U(1), _U(8)


@njit
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = (v1 << _13) | (v1 >> _51)
    v1 ^= v0
    v0 = (v0 << _32) | (v0 >> _32)
    v2 += v3
    v3 = (v3 << _16) | (v3 >> _48)
    v3 ^= v2
    v0 += v3
    v3 = (v3 << _21) | (v3 >> _43)
    v3 ^= v0
    v2 += v1
    v1 = (v1 << _17) | (v1 >> _47)
    v1 ^= v2
    v2 = (v2 << _32) | (v2 >> _32)
    return v0, v1, v2, v3


@njit
def digest(place: int, length: int, key0: Any, key1: Any) -> Any:
    """Return the SipHash of the `length` bytes at address `place`, as two words in native byte order."""
    v0, v1, v2, v3 = key0 ^ _INIT0, key1 ^ _INIT1 ^ _WIDE, key0 ^ _INIT2, key1 ^ _INIT3
    end = place + (length & ~7)
    while place < end:
        word = load_word(place)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        place += 8
    word = _U(length & 0xFF) << _56
    for number in range(length & 7):
        word |= _U(load(place + number)) << (_BYTE * _U(number))
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _WIDE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _SECOND
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@njit
def _find_slot(slots: Any, first: Any, second: Any) -> Any:
    """Return the number of a digest's slot or, if it has none, of a free one; one slot in sixteen must be free."""
    mask, step = _U(len(slots) - 1), second | _ONE
    number = first & mask
    while slots[number].first != _FREE and (slots[number].first != first or slots[number].second != second):
        number = (number + step) & mask
    return np.int64(number)


@njit
def _digest_of_key(place: int, length: int, secret: Any) -> Any:
    first, second = digest(place, length, secret[0], secret[1])
    return _ONE if first == _FREE else first, second


@njit
def _flag_kept(batch: Any, latest_offset: int, slots: Any, secret: Any, flags: Any) -> tuple[int, int, int]:
    """Flag the records to keep. Return `(their number or _MALFORMED, tombstones among them, their max timestamp)`."""
    position, end = batch.place + HEADER_SIZE, batch.place + batch.size
    last_delta = batch.last_offset - batch.base_offset
    kept, tombstones, greatest = 0, 0, -1
    # `flags` has one entry for each record that fits into the batch.
    if batch.record_count < 0 or batch.record_count > (end - position) // MIN_RECORD_BYTES:
        return _MALFORMED, 0, 0
    for number in range(batch.record_count):
        position, delta, _rest, offset_delta, key_at, key_length, _value, value_length = record_fields(position, end)
        if not position or offset_delta < 0 or offset_delta > last_delta:
            return _MALFORMED, 0, 0
        offset = batch.base_offset + offset_delta
        timestamp = batch.base_timestamp + (0 if batch.has_fixed_timestamp else delta)
        if (
            delta < -TIMESTAMP_BOUND
            or delta >= TIMESTAMP_BOUND
            or timestamp < -TIMESTAMP_BOUND
            or timestamp >= TIMESTAMP_BOUND
        ):
            return _MALFORMED, 0, 0
        keep = offset > latest_offset
        if not keep and key_length > _NULL and not (value_length < 0 and batch.horizon == 2):
            first, second = _digest_of_key(key_at, key_length, secret)
            slot = slots[_find_slot(slots, first, second)]
            keep = slot.first == _FREE or offset >= slot.offset
        flags[number] = keep
        if keep:
            kept += 1
            tombstones += value_length < 0
            greatest = max(greatest, timestamp)
    return (kept if position == end else _MALFORMED), tombstones, greatest


@njit
def _write_records(batch: Any, flags: Any, is_new_horizon: int, horizon_ms: int, output: int) -> int:
    """Write the flagged records of a batch to `output` and return the address after them.

    With a new delete horizon their timestamp deltas become relative to it; other fields are unchanged.
    """
    position, end = batch.place + HEADER_SIZE, batch.place + batch.size
    for number in range(batch.record_count):
        record = position
        position, delta, rest, _offset, _at, _length, _value, _value_length = record_fields(record, end)
        if not flags[number]:
            continue
        if is_new_horizon:
            delta = batch.base_timestamp + (0 if batch.has_fixed_timestamp else delta) - horizon_ms
            output = write_varint(output, 1 + varint_size(delta) + position - rest)
            store(output, 0)
            output = write_varint(output + 1, delta)
            record = rest
        copy(output, record, position - record)
        output += position - record
    return output


@njit
def _change_header(batch: int, size: int, kept: int, greatest: int, is_new_horizon: int, horizon_ms: int) -> None:
    """Update the header at address `batch` for the `kept` records and the new `size`, except the checksum."""
    write_int32(batch + _LENGTH, size - LENGTH_OVERHEAD)
    write_int32(batch + _COUNT, kept)
    attributes = read_int16(batch + _ATTRIBUTES)
    if not kept:
        attributes &= _STAYS_EMPTY
        write_int64(batch + _BASE_TIME, -1)
    else:
        write_int64(batch + _MAX_TIME, greatest)
        if is_new_horizon:
            attributes |= DELETE_HORIZON
            write_int64(batch + _BASE_TIME, horizon_ms)
    write_int16(batch + _ATTRIBUTES, attributes)


def find_batches(
    place: int, size: int, lowest: int, end_offset: int, now_ms: int, batches: Any, most: int, result: Any
) -> int:
    """Fill up to `most` rows of `batches` for the complete batches in a buffer; `result` has their count and size.

    Offsets must increase from `lowest` and stay below `end_offset`. Stop at a truncated batch or an invalid header. The
    caller verifies checksums.
    """
    rows = carray(batches, most)
    used = count = 0
    while count < most and size - used >= HEADER_SIZE:
        at = place + used
        length = read_int32(at + _LENGTH) + LENGTH_OVERHEAD
        if load(at + _MAGIC) != MAGIC or length < HEADER_SIZE or length > size - used:
            break
        base_offset, last_delta = read_int64(at), read_int32(at + _LAST_DELTA)
        if last_delta < 0 or base_offset < lowest or base_offset >= end_offset - last_delta:
            break
        attributes = read_int16(at + _ATTRIBUTES)
        batch = rows[count]
        batch.place = at
        batch.size = length
        batch.crc = read_uint32(at + _CRC)
        batch.record_count = read_int32(at + _COUNT)
        batch.base_offset = base_offset
        batch.last_offset = base_offset + last_delta
        batch.max_timestamp = read_int64(at + _MAX_TIME)
        batch.base_timestamp = read_int64(at + _BASE_TIME)
        batch.horizon = 0
        if attributes & DELETE_HORIZON:
            batch.horizon = 2 if batch.base_timestamp <= now_ms else 1
        batch.has_fixed_timestamp = (attributes & LOG_APPEND_TIME) != 0
        if batch.has_fixed_timestamp:
            batch.base_timestamp = batch.max_timestamp
        batch.is_other = (attributes & _OTHER) != 0 or batch.record_count <= 0
        batch.keep_empty = 0
        lowest = batch.last_offset + 1
        used += length
        count += 1
    totals = carray(result, 1)[0]
    totals.count, totals.size = count, used
    return DONE


def index_keys(
    batches: Any, count: int, from_offset: int, slots: Any, slot_count: int, most_keys: int, secret: Any, result: Any
) -> int:
    """Store the last offset of each key from `from_offset` on; return `DONE`, `FULL`, or the row of a malformed batch.

    `result` has the number of keys and the last processed offset, over several calls. `slot_count` is a power of two.
    """
    rows, table, words, totals = (
        carray(batches, count),
        carray(slots, slot_count),
        carray(secret, 2),
        carray(result, 1)[0],
    )
    keys, latest_offset = totals.count, totals.latest_offset
    status = DONE
    for row in range(count):
        batch = rows[row]
        position, end = batch.place + HEADER_SIZE, batch.place + batch.size
        last_delta = batch.last_offset - batch.base_offset
        for _ in range(batch.record_count):
            position, _delta, _rest, offset_delta, key_at, key_length, _value, _value_length = record_fields(
                position, end
            )
            if not position or offset_delta < 0 or offset_delta > last_delta:
                status = row
                break
            offset = batch.base_offset + offset_delta
            if key_length > _NULL and offset >= from_offset:
                first, second = _digest_of_key(key_at, key_length, words)
                slot = table[_find_slot(table, first, second)]
                if slot.first == _FREE:
                    if keys >= most_keys:
                        status = FULL
                        break
                    keys += 1
                    slot.first = first
                    slot.second = second
                slot.offset = offset
            latest_offset = offset
        if status == DONE and position != end:
            status = row
        if status != DONE:
            break
        latest_offset = batch.last_offset
    totals.count, totals.latest_offset = keys, latest_offset
    return status


def keep_records(
    batches: Any,
    count: int,
    latest_offset: int,
    horizon_ms: int,
    slots: Any,
    slot_count: int,
    secret: Any,
    flags: Any,
    flag_count: int,
    output: int,
    kept_rows: Any,
    result: Any,
) -> int:
    """Write the batches to keep to `output`, and a row of each to `kept_rows`; `result` has their count and size.

    Return `DONE` or the row of a malformed batch. `flags` is working memory, with an entry for each record that fits
    into a batch. A batch after `latest_offset` is copied without reading its records, unless `is_other` is set.
    """
    rows, table, words = carray(batches, count), carray(slots, slot_count), carray(secret, 2)
    is_kept, kept_of, totals = carray(flags, flag_count), carray(kept_rows, count), carray(result, 1)[0]
    written, begun_at = 0, output
    for row in range(count):
        batch = rows[row]
        kept, tombstones, greatest = batch.record_count, 0, 0
        if batch.is_other or batch.base_offset <= latest_offset:
            kept, tombstones, greatest = _flag_kept(batch, latest_offset, table, words, is_kept)
            if kept == _MALFORMED:
                return row
        if not kept and not batch.keep_empty:
            continue
        begun = output
        is_new_horizon = tombstones > 0 and not batch.horizon
        is_changed = kept < batch.record_count or is_new_horizon
        if is_changed:
            copy(output, batch.place, HEADER_SIZE)
            output += HEADER_SIZE
            if kept:
                output = _write_records(batch, is_kept, is_new_horizon, horizon_ms, output)
            _change_header(begun, output - begun, kept, greatest, is_new_horizon, horizon_ms)
        else:
            copy(output, batch.place, batch.size)
            output += batch.size
        kept_row = kept_of[written]
        kept_row.base_offset = batch.base_offset
        kept_row.last_offset = batch.last_offset
        kept_row.size = output - begun
        kept_row.record_count = kept
        kept_row.max_timestamp = greatest if is_changed and kept else batch.max_timestamp
        kept_row.is_changed = is_changed
        kept_row.has_new_horizon = is_new_horizon
        written += 1
    totals.count, totals.size = written, output - begun_at
    return DONE


_INT = types.int64
_BATCHES, _KEPT, _SLOTS, _RESULT = (types.CPointer(numba.from_dtype(each)) for each in (BATCH, KEPT, SLOT, RESULT))
_WORDS, _BYTES = types.CPointer(types.uint64), types.CPointer(types.uint8)
SIGNATURES: Final = {
    find_batches: _INT(_INT, _INT, _INT, _INT, _INT, _BATCHES, _INT, _RESULT),
    index_keys: _INT(_BATCHES, _INT, _INT, _SLOTS, _INT, _INT, _WORDS, _RESULT),
    keep_records: _INT(_BATCHES, _INT, _INT, _INT, _SLOTS, _INT, _WORDS, _BYTES, _INT, _INT, _KEPT, _RESULT),
}
"""The exported functions and their C signatures."""
