"""Kafka's zigzag varints of record batches, small ones precomputed: most numbers in a record are lengths and deltas."""

from typing import Final

from odradek.protocol.errors import CorruptBatchError

MAX_VARINT_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """A signed number, zigzag and base 128, low groups first. 64 bits at most are of use to a reader."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


VARINTS: Final = tuple(map(encode_varint, range(8192)))
"""`encode_varint(n)` of 0 … 8191: those of one and two bytes."""


def varint(value: int) -> bytes:
    """`encode_varint`, from the table where it reaches."""
    return VARINTS[value] if 0 <= value < 8192 else encode_varint(value)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """`(value, position after it)`. Raises `IndexError` past the end, `CorruptBatchError` after ten bytes."""
    value = data[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    byte = data[position + 1]
    if byte < 0x80:
        value = value & 0x7F | byte << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value = value & 0x7F | (byte & 0x7F) << 7
    for shift in range(14, 7 * MAX_VARINT_BYTES, 7):
        byte = data[position + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + shift // 7 + 1
    raise CorruptBatchError("a varint is longer than ten bytes")
