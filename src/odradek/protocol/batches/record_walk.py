"""Validates decompressed records for the broker, without an object per record.

The format is drawn in `records`. The rules are those of Kafka's broker, stricter than a reader's: a varint that Kafka
reads as an int has at most five bytes, and a record has exactly the length in its length field.
"""

from collections.abc import Iterator
from typing import Final

from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import read_varint, varint

MIN_RECORD_BYTES: Final = 7
_INT_BYTES: Final = 5
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)


def walk_records(data: bytes, count: int, most_headers: int) -> Iterator[tuple[int, int, int]]:  # noqa: C901 (calls would double its cost)
    """Yield `(timestamp delta, offset delta, key length)` of each record; a negative length is a null key.

    Raises `CorruptBatchError` at the first invalid record, and if `data` is not exactly `count` records, or if these
    have more than `most_headers` headers, each of which takes half as long as a record.
    """
    if not 0 <= count * MIN_RECORD_BYTES <= len(data):
        raise CorruptBatchError(f"{len(data)} bytes can't be {count} records")
    position = 0
    try:
        for _ in range(count):
            # Varints of one byte, and of two where these are common, are read inline to save a call.
            if (n := data[position]) < 0x80:
                position += 1
            elif (m := data[position + 1]) < 0x80:
                n = n & 0x7F | m << 7
                position += 2
            else:
                n, position = _read_raw(data, position)
            end = position + ((n >> 1) ^ -(n & 1))
            # The byte at `position` is the record's attributes, which are unused.
            if (n := data[position + 1]) < 0x80:
                timestamp_delta = (n >> 1) ^ -(n & 1)
                position += 2
            else:
                timestamp_delta, position = read_varint(data, position + 1)
                if timestamp_delta not in _LONG:
                    raise CorruptBatchError("a timestamp has more than 64 bits")
            if (n := data[position]) < 0x80:
                position += 1
            elif (m := data[position + 1]) < 0x80:
                n = n & 0x7F | m << 7
                position += 2
            else:
                n, position = _read_raw(data, position)
            offset_delta = (n >> 1) ^ -(n & 1)
            if (n := data[position]) < 0x80:
                position += 1
            else:
                n, position = _read_raw(data, position)
            key_length = (n >> 1) ^ -(n & 1)
            if key_length > 0:
                position += key_length
            if (n := data[position]) < 0x80:
                position += 1
            elif (m := data[position + 1]) < 0x80:
                n = n & 0x7F | m << 7
                position += 2
            else:
                n, position = _read_raw(data, position)
            if not n & 1:
                position += n >> 1
            if data[position] == 0:
                position += 1
            else:
                position, most_headers = _skip_headers(data, position, most_headers)
            # Positions only grow, so a field that exceeds its record is detected here.
            if position != end:
                raise CorruptBatchError("a record is not as long as it says")
            yield timestamp_delta, offset_delta, key_length
    except IndexError:
        raise CorruptBatchError("a record is cut") from None
    if position != len(data):
        raise CorruptBatchError("there are bytes after the last record")


def renumber_records(data: bytes, count: int) -> bytearray:
    """Return the records, which must be valid, with offset deltas 0, 1, 2, …."""
    renumbered = bytearray()
    position = 0
    for number in range(count):
        length, start = read_varint(data, position)
        position = start + length
        _, offset_at = read_varint(data, start + 1)
        _, rest_at = read_varint(data, offset_at)
        body = data[start:offset_at] + varint(number) + data[rest_at:position]
        renumbered += varint(len(body))
        renumbered += body
    return renumbered


def _read_int(data: bytes, position: int) -> tuple[int, int]:
    n, position = _read_raw(data, position)
    return (n >> 1) ^ -(n & 1), position


def _read_raw(data: bytes, position: int) -> tuple[int, int]:
    """Read a varint of at most 32 bits; return it without zigzag decoding, and the position after it."""
    value, after = read_varint(data, position)
    if after - position > _INT_BYTES or value not in _INT:
        raise CorruptBatchError("a length or an offset has more than 32 bits")
    return (value << 1) ^ (value >> 63), after


def _skip_headers(data: bytes, position: int, most: int) -> tuple[int, int]:
    """Return the position after a record's headers, whose keys must not be null, and the number of headers left."""
    count, position = _read_int(data, position)
    if not 0 <= count <= (len(data) - position) // 2:  # a header takes two bytes at least
        raise CorruptBatchError(f"a record can't have {count} headers")
    if count > most:
        raise CorruptBatchError(f"the records have too many headers: one has {count}, and {most} are left")
    for _ in range(count):
        length, position = _read_int(data, position)
        if length < 0:
            raise CorruptBatchError("a record header has no key")
        length, position = _read_int(data, position + length)
        position += max(length, 0)
    return position, most - count
