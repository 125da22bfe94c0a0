"""Variable-length integers: unsigned in messages, zigzag in record batches.

Both are base 128, low groups first; the high bit of a byte is set if another byte follows. Most numbers in records take
one or two bytes, so their encodings are precomputed.
"""

from typing import Final

from odradek.model import Buffer
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError

MAX_VARINT_BYTES: Final = 10
_TOO_LARGE: Final = 1 << 64
MAX_UNSIGNED_VARINT_BYTES: Final = 5


def encode_unsigned_varint(value: int) -> bytes:
    """Encode a non-negative number without zigzag."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varint(value: int) -> bytes:
    """Encode a signed number of at most 64 bits with zigzag."""
    return encode_unsigned_varint((value << 1) ^ (value >> 63))


_BYTES: Final = [bytes((each,)) for each in range(0x100)]
VARINTS: Final = (
    *_BYTES[:0x80:2],
    *(low + high for high in _BYTES[1:0x80] for low in _BYTES[0x80::2]),
)
"""`encode_varint(n)` for n = 0 … 8191, which take one or two bytes."""


def varint(value: int) -> bytes:
    """Return `encode_varint(value)`, from `VARINTS` if possible."""
    return VARINTS[value] if 0 <= value < 8192 else encode_varint(value)


def varint_size(value: int) -> int:
    """Return the number of bytes of `encode_varint(value)`."""
    return max(((value << 1) ^ (value >> 63)).bit_length() + 6, 7) // 7


def write_unsigned_varint(buffer: bytearray, value: int) -> None:
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def read_unsigned_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return `(value, offset after it)`.

    Raises `IndexError` at the end of the buffer, `MalformedMessageError` for more than five bytes.
    """
    value = buffer[offset]
    if value < 0x80:
        return value, offset + 1
    value &= 0x7F
    for position in range(1, MAX_UNSIGNED_VARINT_BYTES):
        byte = buffer[offset + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, offset + position + 1
    raise MalformedMessageError("malformed message: a varint is longer than five bytes")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a zigzag varint; return `(value, position after it)`.

    Raises `IndexError` at the end of the data, `CorruptBatchError` for more than 64 bits.
    """
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
        if byte < 0x80 and value < _TOO_LARGE:
            return (value >> 1) ^ -(value & 1), position + shift // 7 + 1
    raise CorruptBatchError("a varint has more than 64 bits")
