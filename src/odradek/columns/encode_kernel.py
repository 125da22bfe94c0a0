"""Encodes rows of Arrow columns as a batch's records, compiled by numba; the inverse of `decode_kernel`.

A record's size is computed before it is written, so no record is written partially.
"""

from typing import Any, Final

from odradek.columns.decode_kernel import njit
from odradek.columns.memory import copy, load, store

_LOGICAL_SHIFT: Final = (1 << 57) - 1


@njit
def varint_size(value: int) -> int:
    """Return the number of bytes that `write_varint` writes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 0x7F or rest < 0:
        rest = (rest >> 7) & _LOGICAL_SHIFT
        size += 1
    return size


@njit
def write_varint(place: int, value: int) -> int:
    """Write a zigzag varint and return the address after it."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F or rest < 0:
        store(place, rest & 0x7F | 0x80)
        rest = (rest >> 7) & _LOGICAL_SHIFT
        place += 1
    store(place, rest)
    return place + 1


@njit
def _length(ends: Any, valid: int, first_bit: int, row: int) -> int:
    """Return the length of a row's bytes; -1 for null or a missing column."""
    if ends.shape[0] == 0:
        return -1
    bit = first_bit + row
    if valid and not (load(valid + (bit >> 3)) >> (bit & 7)) & 1:
        return -1
    length: int = ends[row + 1] - ends[row]
    return length


@njit
def _write_bytes(place: int, length: int, source: int) -> int:
    place = write_varint(place, length)
    if length > 0:
        copy(place, source, length)
        place += length
    return place


@njit
def encode(
    rows: Any,
    start: int,
    timestamps: Any,
    ends: Any,
    header_lists: Any,
    header_ends: Any,
    places: Any,
    output: int,
    room: int,
    max_bytes: int,
    result: Any,
) -> int:
    """Encode as many of `rows[start:]` as fit into `max_bytes`; return their number.

    `ends` are Arrow's offsets of (keys, values), `header_ends` those of headers' (keys, values), `header_lists` those
    of the header lists; an empty array is a missing column. `places` has a row for each of these five: address of the
    data, address of the validity bitmap or 0, position of the first bit. The first row is encoded even if it exceeds
    `max_bytes`. If it exceeds `room`, the size of `output`, return 0 and its size in `result[0]`. Otherwise `result`
    receives the size, the first timestamp and the maximum timestamp.
    """
    size = count = 0
    base_timestamp = greatest = timestamps[rows[start]] if start < rows.shape[0] else -1
    for index in range(start, rows.shape[0]):
        row = rows[index]
        delta = timestamps[row] - base_timestamp
        key_length = _length(ends[0], places[0, 1], places[0, 2], row)
        value_length = _length(ends[1], places[1, 1], places[1, 2], row)
        first_header = last_header = 0
        if header_lists.shape[0]:
            bit = places[4, 2] + row
            if not places[4, 1] or (load(places[4, 1] + (bit >> 3)) >> (bit & 7)) & 1:
                first_header, last_header = header_lists[row], header_lists[row + 1]
        body = 1 + varint_size(delta) + varint_size(count)
        body += varint_size(key_length) + max(key_length, 0) + varint_size(value_length) + max(value_length, 0)
        body += varint_size(last_header - first_header)
        for header in range(first_header, last_header):
            for part in range(2):
                length = _length(header_ends[part], places[2 + part, 1], places[2 + part, 2], header)
                body += varint_size(length) + max(length, 0)
        needed = size + varint_size(body) + body
        if count and needed > max_bytes:
            break
        if needed > room:
            if not count:
                result[0] = needed
                return 0
            break
        place = write_varint(output + size, body)
        store(place, 0)
        place = write_varint(place + 1, delta)
        place = write_varint(place, count)
        place = _write_bytes(place, key_length, places[0, 0] + (ends[0][row] if key_length > 0 else 0))
        place = _write_bytes(place, value_length, places[1, 0] + (ends[1][row] if value_length > 0 else 0))
        place = write_varint(place, last_header - first_header)
        for header in range(first_header, last_header):
            for part in range(2):
                length = _length(header_ends[part], places[2 + part, 1], places[2 + part, 2], header)
                source = places[2 + part, 0] + (header_ends[part][header] if length > 0 else 0)
                place = _write_bytes(place, length, source)
        size = needed
        count += 1
        greatest = max(greatest, timestamps[row])
    result[0], result[1], result[2] = size, base_timestamp, greatest
    return count


@njit
def murmur2(ends: Any, data: int, valid: int, first_bit: int, partition_count: int, partitions: Any) -> None:
    """Write each key's partition to `partitions`: Kafka's `Utils.murmur2`, positive, modulo the count; -1 for null."""
    for row in range(partitions.shape[0]):
        length = _length(ends, valid, first_bit, row)
        if length < 0:
            partitions[row] = -1
            continue
        place = data + ends[row]
        state = (0x9747B28C ^ length) & 0xFFFFFFFF
        for word in range(place, place + (length & ~3), 4):
            k = load(word) | load(word + 1) << 8 | load(word + 2) << 16 | load(word + 3) << 24
            k = k * 0x5BD1E995 & 0xFFFFFFFF
            k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
            state = (state * 0x5BD1E995 & 0xFFFFFFFF) ^ k
        tail = place + (length & ~3)
        if length & 3:
            for byte in range(length & 3):
                state ^= load(tail + byte) << (8 * byte)
            state = state * 0x5BD1E995 & 0xFFFFFFFF
        state = (state ^ state >> 13) * 0x5BD1E995 & 0xFFFFFFFF
        state ^= state >> 15
        partitions[row] = (state & 0x7FFFFFFF) % partition_count
