"""The walk of compaction over the batches of a buffer and their records: by key, which is the last, what is left.

`log.record_filter` has the rules, and the same in plain Python; `compaction_layout` what lies where. Nothing but int64
goes in and out, and positions are addresses: so the machine code needs nothing of numba when it runs. What has no
`njit` before it is what `compaction_code` loads. Nothing is read before it is proved to lie in its record, and the
record in its batch (see `decode_kernel`).

Slots are found by double hashing. Digests are SipHash-2-4 with 128 bits, keyed by whoever owns the slots (Aumasson and
Bernstein, 2012).
"""

from typing import Any, Final

import numpy as np

from odradek.columns import compaction_layout as layout
from odradek.columns.compaction_layout import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    DONE,
    FIXED_TIMESTAMP,
    FULL,
    HORIZON,
    KEEP_EMPTY,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    MIN_RECORD_BYTES,
    PLACE,
    RECORD_COUNT,
    SECTION,
    SECTION_SIZE,
)
from odradek.columns.decode_kernel import njit, varint
from odradek.columns.encode_kernel import varint_size, write_varint
from odradek.columns.memory import (
    copy,
    load,
    load_long,
    load_word,
    read_int16,
    read_int32,
    read_int64,
    read_uint32,
    store,
    store_long,
    store_word,
    write_int16,
    write_int32,
    write_int64,
)
from odradek.protocol.record_batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)

MOST_TIME: Final = 1 << 62
"""Times beyond have no difference of 64 bits."""

# Where the fields of a batch's header begin (`protocol.record_batch`).
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA = 8, 16, 17, 21, 23
_BASE_TIME, _MAX_TIME, _COUNT = 27, 35, 57
_OTHER: Final = CODEC_MASK | CONTROL | TRANSACTIONAL
_STAYS_EMPTY: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_MALFORMED: Final = -1

_AS_IT_IS: Final = 2
_NULL: Final = -1
_WORD: Final = 8
_U = np.uint64
_13, _16, _17, _21, _32 = _U(13), _U(16), _U(17), _U(21), _U(32)
_43, _47, _48, _51, _56 = _U(43), _U(47), _U(48), _U(51), _U(56)
_INIT0, _INIT1 = _U(0x736F6D6570736575), _U(0x646F72616E646F6D)
_INIT2, _INIT3 = _U(0x6C7967656E657261), _U(0x7465646279746573)
_WIDE, _SECOND = _U(0xEE), _U(0xDD)
_FREE, _ONE, _BYTE = _U(0), _U(1), _U(8)


@njit
def _get(rows: int, row: int, column: int) -> int:
    value: int = load_long(rows + (row * layout.ROW_WIDTH + column) * _WORD)
    return value


@njit
def _set(rows: int, row: int, column: int, value: int) -> None:
    store_long(rows + (row * layout.ROW_WIDTH + column) * _WORD, value)


def find_batches(
    place: int,
    size: int,
    lowest: int,
    end_offset: int,
    now_ms: int,
    rows: int,
    most_rows: int,
    marks: int,
    state: int,
) -> int:
    """Fill rows and marks with the whole batches at the beginning of a buffer; how many there are.

    Their offsets rise, from `lowest` on to below `end_offset`. It ends before what is cut, or cannot be the next batch.
    """
    position, count, others = 0, 0, 0
    while count < most_rows and size - position >= HEADER_SIZE:
        batch = place + position
        length = read_int32(batch + _LENGTH) + LENGTH_OVERHEAD
        if load(batch + _MAGIC) != MAGIC or length < HEADER_SIZE or length > size - position:
            break
        base_offset, last_delta = read_int64(batch), read_int32(batch + _LAST_DELTA)
        if last_delta < 0 or base_offset < lowest or base_offset >= end_offset - last_delta:
            break
        lowest = base_offset + last_delta + 1
        attributes = read_int16(batch + _ATTRIBUTES)
        record_count, base_timestamp = read_int32(batch + _COUNT), read_int64(batch + _BASE_TIME)
        max_timestamp, is_fixed = read_int64(batch + _MAX_TIME), attributes & LOG_APPEND_TIME != 0
        horizon = 0
        if attributes & DELETE_HORIZON:
            horizon = 2 if base_timestamp <= now_ms else 1
        is_other = attributes & _OTHER != 0 or record_count <= 0
        _set(rows, count, PLACE, batch)
        _set(rows, count, SECTION, batch + HEADER_SIZE)
        _set(rows, count, SECTION_SIZE, length - HEADER_SIZE)
        _set(rows, count, RECORD_COUNT, record_count)
        _set(rows, count, BASE_OFFSET, base_offset)
        _set(rows, count, LAST_OFFSET_DELTA, last_delta)
        _set(rows, count, BASE_TIMESTAMP, max_timestamp if is_fixed else base_timestamp)
        _set(rows, count, FIXED_TIMESTAMP, is_fixed)
        _set(rows, count, HORIZON, horizon)
        _set(rows, count, MAX_TIMESTAMP, max_timestamp)
        _set(rows, count, KEEP_EMPTY, 0)
        _set(rows, count, layout.IS_OTHER, is_other)
        mark = marks + count * layout.MARK_WIDTH * _WORD
        store_long(mark, position + CRC_START)
        store_long(mark + _WORD, position + length)
        store_long(mark + 2 * _WORD, read_uint32(batch + _CRC))
        others += is_other
        position += length
        count += 1
    store_long(state + layout.USED_BYTES * _WORD, position)
    store_long(state + layout.OTHERS * _WORD, others)
    return count


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
def _slot_of(word0: Any, word1: Any, slots: int, mask: Any) -> Any:
    """The address of the slot with a digest, or of the free one where it belongs."""
    number, step = word0 & mask, word1 | _ONE
    slot = slots + np.int64(number) * layout.SLOT_BYTES
    found = load_word(slot)
    while found != _FREE and (found != word0 or load_word(slot + _WORD) != word1):
        number = (number + step) & mask
        slot = slots + np.int64(number) * layout.SLOT_BYTES
        found = load_word(slot)
    return slot


@njit
def _digest_of_key(place: int, length: int, key0: Any, key1: Any) -> Any:
    word0, word1 = digest(place, length, key0, key1)
    return _ONE if word0 == _FREE else word0, word1


def move_slots(source: int, source_count: int, target: int, target_count: int) -> int:
    """Enter all keys of some slots into others, which are free and more. Counts are powers of two."""
    mask = _U(target_count - 1)
    for number in range(source_count):
        slot = source + number * layout.SLOT_BYTES
        if load_word(slot) != _FREE:
            copy(_slot_of(load_word(slot), load_word(slot + _WORD), target, mask), slot, layout.SLOT_BYTES)
    return DONE


def index_keys(
    rows: int, count: int, from_offset: int, slots: int, slot_count: int, most_keys: int, secret: int, state: int
) -> int:
    """Note the last offset of each key from `from_offset` on; `DONE`, `FULL`, or the number of a malformed batch.

    `secret` is the address of two words for the digests.
    """
    mask = _U(slot_count - 1)
    key0, key1 = load_word(secret), load_word(secret + _WORD)
    keys, latest = load_long(state + layout.KEYS * _WORD), load_long(state + layout.LATEST_OFFSET * _WORD)
    answer = DONE
    for row in range(count):
        position = _get(rows, row, SECTION)
        end = position + _get(rows, row, SECTION_SIZE)
        base_offset, last_delta = _get(rows, row, BASE_OFFSET), _get(rows, row, LAST_OFFSET_DELTA)
        for _ in range(_get(rows, row, RECORD_COUNT)):
            position, _delta, _rest, offset_delta, key_at, key_length, _value = _fields(position, end)
            if not position or offset_delta < 0 or offset_delta > last_delta:
                answer = row
                break
            offset = base_offset + offset_delta
            if key_length > _NULL and offset >= from_offset:
                word0, word1 = _digest_of_key(key_at, key_length, key0, key1)
                slot = _slot_of(word0, word1, slots, mask)
                if load_word(slot) == _FREE:
                    if keys >= most_keys:
                        answer = FULL
                        break
                    keys += 1
                    store_word(slot, word0)
                    store_word(slot + _WORD, word1)
                store_long(slot + 2 * _WORD, offset)
            latest = offset
        if answer == DONE and position != end:
            answer = row
        if answer != DONE:
            break
        latest = base_offset + last_delta
    store_long(state + layout.KEYS * _WORD, keys)
    store_long(state + layout.LATEST_OFFSET * _WORD, latest)
    return answer


@njit
def _write_kept(
    position: int, end: int, count: int, flags: int, base_timestamp: int, time_kind: int, horizon_ms: int, output: int
) -> int:
    """Write the flagged records of a section to `output`; the address after them.

    `time_kind` is 0 if a record's time is its delta from `base_timestamp`, 1 if it is `base_timestamp`: their times are
    written anew, from `horizon_ms`. With `_AS_IT_IS` records stay as they are.
    """
    for number in range(count):
        record = position
        position, delta, rest, _offset, _at, _length, _value = _fields(record, end)
        if not load(flags + number):
            continue
        if time_kind != _AS_IT_IS:
            delta = (base_timestamp if time_kind else base_timestamp + delta) - horizon_ms
            output = write_varint(output, 1 + varint_size(delta) + position - rest)
            store(output, 0)
            output = write_varint(output + 1, delta)
            record = rest
        copy(output, record, position - record)
        output += position - record
    return output


@njit
def _flag_kept(
    rows: int, row: int, latest_offset: int, slots: int, mask: Any, key0: Any, key1: Any, flags: int
) -> tuple[int, int, int]:
    """Flag the records of a batch that stay: how many (`_MALFORMED`: see there), their tombstones, greatest time."""
    position = _get(rows, row, SECTION)
    end = position + _get(rows, row, SECTION_SIZE)
    base_offset, last_delta = _get(rows, row, BASE_OFFSET), _get(rows, row, LAST_OFFSET_DELTA)
    base_timestamp, is_fixed = _get(rows, row, BASE_TIMESTAMP), _get(rows, row, FIXED_TIMESTAMP)
    is_past_horizon = _get(rows, row, HORIZON) == 2
    count = _get(rows, row, RECORD_COUNT)
    kept, tombstones, greatest = 0, 0, -1
    # There is a flag for as many records as fit into the section.
    if count < 0 or count > (end - position) // MIN_RECORD_BYTES:
        return _MALFORMED, 0, 0
    for number in range(count):
        position, delta, _rest, offset_delta, key_at, key_length, value_length = _fields(position, end)
        if not position or offset_delta < 0 or offset_delta > last_delta:
            return _MALFORMED, 0, 0
        timestamp = base_timestamp + (0 if is_fixed else delta)
        if delta < -MOST_TIME or delta >= MOST_TIME or timestamp < -MOST_TIME or timestamp >= MOST_TIME:
            return _MALFORMED, 0, 0
        offset = base_offset + offset_delta
        keep = offset > latest_offset
        if not keep and key_length > _NULL and not (value_length < 0 and is_past_horizon):
            word0, word1 = _digest_of_key(key_at, key_length, key0, key1)
            slot = _slot_of(word0, word1, slots, mask)
            keep = load_word(slot) == _FREE or offset >= load_long(slot + 2 * _WORD)
        store(flags + number, keep)
        if keep:
            kept += 1
            tombstones += value_length < 0
            greatest = max(greatest, timestamp)
    return (kept if position == end else _MALFORMED), tombstones, greatest


@njit
def _change_header(batch: int, size: int, kept: int, greatest: int, is_new: int, horizon_ms: int) -> None:
    """Let the header of a batch of `size` bytes say what is left in it; all but the checksum."""
    write_int32(batch + _LENGTH, size - LENGTH_OVERHEAD)
    write_int32(batch + _COUNT, kept)
    attributes = read_int16(batch + _ATTRIBUTES)
    if not kept:
        attributes &= _STAYS_EMPTY
        write_int64(batch + _BASE_TIME, -1)
    else:
        write_int64(batch + _MAX_TIME, greatest)
        if is_new:
            attributes |= DELETE_HORIZON
            write_int64(batch + _BASE_TIME, horizon_ms)
    write_int16(batch + _ATTRIBUTES, attributes)


def keep_records(
    rows: int,
    count: int,
    latest_offset: int,
    horizon_ms: int,
    slots: int,
    slot_count: int,
    secret: int,
    flags: int,
    output: int,
    kept_rows: int,
) -> int:
    """Write what is left of each batch to `output`, and of what is left a row; -1 - how many rows.

    Or the number of a malformed batch. `flags` has a byte for each record that may be in one. A whole batch behind
    `latest_offset` stays, unseen.
    """
    mask = _U(slot_count - 1)
    key0, key1 = load_word(secret), load_word(secret + _WORD)
    written = 0
    for row in range(count):
        place, start = _get(rows, row, PLACE), _get(rows, row, SECTION)
        size, record_count = _get(rows, row, SECTION_SIZE), _get(rows, row, RECORD_COUNT)
        base_offset, base_timestamp = _get(rows, row, BASE_OFFSET), _get(rows, row, BASE_TIMESTAMP)
        kept, tombstones, greatest = record_count, 0, 0
        if not place or base_offset <= latest_offset:
            kept, tombstones, greatest = _flag_kept(rows, row, latest_offset, slots, mask, key0, key1, flags)
            if kept == _MALFORMED:
                return row
        is_new = tombstones > 0 and not _get(rows, row, HORIZON)
        changes, begun = 0, output
        if kept == record_count and not is_new:
            greatest = _get(rows, row, MAX_TIMESTAMP)
            if place:
                copy(output, place, HEADER_SIZE + size)
                output += HEADER_SIZE + size
        elif not kept and place:
            if not _get(rows, row, KEEP_EMPTY):
                continue
            copy(output, place, HEADER_SIZE)
            output += HEADER_SIZE
            greatest, changes = _get(rows, row, MAX_TIMESTAMP), layout.CHANGED
        else:
            if place:
                copy(output, place, HEADER_SIZE)
                output += HEADER_SIZE
            time_kind = _get(rows, row, FIXED_TIMESTAMP) if is_new else _AS_IT_IS
            output = _write_kept(
                start, start + size, record_count, flags, base_timestamp, time_kind, horizon_ms, output
            )
            changes = layout.CHANGED | (layout.NEW_HORIZON if is_new else 0)
        if changes and place:
            _change_header(begun, output - begun, kept, greatest, is_new, horizon_ms)
        kept_row = kept_rows + written * layout.KEPT_WIDTH * _WORD
        store_long(kept_row + layout.KEPT_OFFSET * _WORD, base_offset)
        store_long(kept_row + layout.KEPT_LAST_OFFSET * _WORD, base_offset + _get(rows, row, LAST_OFFSET_DELTA))
        store_long(kept_row + layout.KEPT_SIZE * _WORD, output - begun if changes or place else -1)
        store_long(kept_row + layout.KEPT_COUNT * _WORD, kept)
        store_long(kept_row + layout.KEPT_TIMESTAMP * _WORD, greatest)
        store_long(kept_row + layout.KEPT_CHANGES * _WORD, changes)
        written += 1
    return -1 - written
