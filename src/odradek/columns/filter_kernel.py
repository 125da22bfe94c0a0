"""The walk of compaction over the records of many batches, compiled by numba: by key, which is the last, what is left.

`log.record_filter` has the rules, and the same in plain Python. The table of last offsets is `log.offset_map`'s, three
arrays found by double hashing; a slot is free where the first word is 0. Positions are addresses, and nothing is read
before it is proved to lie in its record (see `decode_kernel`). The lock of the interpreter is not held meanwhile.

Digests are SipHash-2-4 with 128 bits, keyed by whoever owns the table (Aumasson and Bernstein, 2012).
"""

from typing import Any, Final

import numpy as np

from odradek.columns.decode_kernel import MIN_RECORD_BYTES, njit, varint
from odradek.columns.encode_kernel import varint_size, write_varint
from odradek.columns.memory import copy, load, load_word, store

# A row of the table per batch.
SECTION: Final = 0
SECTION_SIZE: Final = 1
RECORD_COUNT: Final = 2
BASE_OFFSET: Final = 3
BASE_TIMESTAMP: Final = 4
FIXED_TIMESTAMP: Final = 5
"""1 if every record has the batch's greatest timestamp, which then stands in `BASE_TIMESTAMP`."""
HORIZON: Final = 6
"""0 without a delete horizon, 1 with one, 2 with one that has passed."""
LAST_OFFSET_DELTA: Final = 7
KEPT: Final = 8
"""Filled by `keep_records`, like all that follow: how many records stay."""
OUTPUT_SIZE: Final = 9
"""The bytes of those; -1 if all stays as it is and nothing was written."""
MAX_TIMESTAMP: Final = 10
NEW_HORIZON: Final = 11
"""1 if the batch gets a delete horizon now."""
TABLE_WIDTH: Final = 12

FULL: Final = -2
"""What `index_keys` answers when the table has no room for the next key."""
DONE: Final = -1
MOST_GROWTH: Final = 11
"""By how much a record may become longer."""
MOST_TIME: Final = 1 << 62
"""Times beyond have no difference of 64 bits."""

AS_IT_IS: Final = 2
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
    """The two words of the digest of bytes at an address, in the machine's order of bytes."""
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
def _fields(position: int, end: int) -> Any:
    """What is asked of the record at `position`; a first field, its end, of 0 if it is malformed.

    `(end, timestamp delta, place of the offset delta, offset delta, place of the key, key's length, value's length)`
    """
    nothing = (0, 0, 0, 0, 0, 0, 0)
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
    # One byte at least is left: the number of headers.
    if value_length >= record_end - value_at or value_at >= record_end:
        return nothing
    return record_end, timestamp_delta, rest, offset_delta, key_at, key_length, value_length


@njit
def index_keys(
    table: Any, from_offset: int, first: Any, second: Any, offsets: Any, max_keys: int, keys: Any, state: Any
) -> int:
    """Note the last offset of each key from `from_offset` on; `DONE`, `FULL`, or the number of a malformed batch.

    `keys` are two words for the digests; `state` is the number of keys in the table, and the last offset looked at.
    """
    mask = _U(first.shape[0] - 1)
    key0, key1 = keys[0], keys[1]
    for batch in range(table.shape[0]):
        position = table[batch, SECTION]
        end = position + table[batch, SECTION_SIZE]
        for _ in range(table[batch, RECORD_COUNT]):
            position, _delta, _rest, offset_delta, key_at, key_length, _value = _fields(position, end)
            if not position or offset_delta < 0 or offset_delta > table[batch, LAST_OFFSET_DELTA]:
                return batch
            offset = table[batch, BASE_OFFSET] + offset_delta
            if key_length > _NULL and offset >= from_offset:
                word0, word1 = digest(key_at, key_length, key0, key1)
                if word0 == _FREE:
                    word0 = _ONE
                slot, step = word0 & mask, word1 | _ONE
                while first[slot] != _FREE and (first[slot] != word0 or second[slot] != word1):
                    slot = (slot + step) & mask
                if first[slot] == _FREE:
                    if state[0] >= max_keys:
                        return FULL
                    state[0] += 1
                    first[slot] = word0
                    second[slot] = word1
                offsets[slot] = offset
            state[1] = offset
        if position != end:
            return batch
    return DONE


@njit
def _write_kept(
    position: int, end: int, count: int, flags: Any, base_timestamp: int, time_kind: int, horizon_ms: int, output: int
) -> int:
    """Write the flagged records of a section to `output`; the address after them.

    `time_kind` is 0 if a record's time is its delta from `base_timestamp`, 1 if it is `base_timestamp`: their times are
    written anew, from `horizon_ms`. With `AS_IT_IS` records stay as they are.
    """
    for number in range(count):
        record = position
        position, delta, rest, _offset, _at, _length, _value = _fields(record, end)
        if not flags[number]:
            continue
        if time_kind != AS_IT_IS:
            delta = (base_timestamp if time_kind else base_timestamp + delta) - horizon_ms
            output = write_varint(output, 1 + varint_size(delta) + position - rest)
            store(output, 0)
            output = write_varint(output + 1, delta)
            record = rest
        copy(output, record, position - record)
        output += position - record
    return output


@njit
def keep_records(
    table: Any,
    latest_offset: int,
    horizon_ms: int,
    first: Any,
    second: Any,
    offsets: Any,
    keys: Any,
    flags: Any,
    output: int,
) -> int:
    """Fill the table, and write the records of changed batches to `output`, one batch after the other.

    `flags` has room for each record of the largest batch. `DONE`, or the number of a malformed batch.
    """
    mask = _U(first.shape[0] - 1)
    key0, key1 = keys[0], keys[1]
    for batch in range(table.shape[0]):
        start = table[batch, SECTION]
        end = start + table[batch, SECTION_SIZE]
        count = table[batch, RECORD_COUNT]
        base_timestamp, is_fixed = table[batch, BASE_TIMESTAMP], table[batch, FIXED_TIMESTAMP]
        horizon = table[batch, HORIZON]
        position, kept, tombstones, greatest = start, 0, 0, -1
        for number in range(count):
            position, delta, _rest, offset_delta, key_at, key_length, value_length = _fields(position, end)
            if not position or offset_delta < 0 or offset_delta > table[batch, LAST_OFFSET_DELTA]:
                return batch
            timestamp = base_timestamp + (0 if is_fixed else delta)
            if delta < -MOST_TIME or delta >= MOST_TIME or timestamp < -MOST_TIME or timestamp >= MOST_TIME:
                return batch
            offset = table[batch, BASE_OFFSET] + offset_delta
            keep = offset > latest_offset
            if not keep and key_length > _NULL and not (value_length < 0 and horizon == 2):
                word0, word1 = digest(key_at, key_length, key0, key1)
                if word0 == _FREE:
                    word0 = _ONE
                slot, step = word0 & mask, word1 | _ONE
                while first[slot] != _FREE and (first[slot] != word0 or second[slot] != word1):
                    slot = (slot + step) & mask
                keep = first[slot] == _FREE or offset >= offsets[slot]
            flags[number] = keep
            if keep:
                kept += 1
                tombstones += value_length < 0
                greatest = max(greatest, timestamp)
        if position != end:
            return batch
        has_new_horizon = horizon == 0 and tombstones > 0
        table[batch, KEPT] = kept
        table[batch, MAX_TIMESTAMP] = greatest
        table[batch, NEW_HORIZON] = has_new_horizon
        if kept == count and not has_new_horizon:
            table[batch, OUTPUT_SIZE] = -1
            continue
        time_kind = is_fixed if has_new_horizon else AS_IT_IS
        written = _write_kept(start, end, count, flags, base_timestamp, time_kind, horizon_ms, output)
        table[batch, OUTPUT_SIZE] = written - output
        output = written
    return DONE
