"""Encodes and decodes strings, bytes, arrays, UUIDs and tagged fields of messages.

```
string          int16 length, UTF-8; -1 is null             compact: unsigned varint of length + 1; 0 is null;
                                                            a length of more than 32,767 is an error
bytes, records  int32 length; -1 is null                    compact: unsigned varint of length + 1; 0 is null
array           int32 count; -1 is null                     compact: unsigned varint of count + 1; 0 is null
tagged fields   unsigned varint count, then per field: tag, size in bytes, that many bytes
```
Each reader takes `(buffer, offset)` and returns `(value, offset after it)`. A length beyond the buffer raises
`MalformedMessageError`; a missing length or number raises `IndexError` or `struct.error`, which `malformed` converts.
"""

import struct
import uuid
from collections.abc import Container
from functools import lru_cache
from typing import Final

from odradek.model import Buffer
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.varint import encode_unsigned_varint, read_unsigned_varint

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
NO_UUID: Final = bytes(16)
LONGEST_STRING_BYTES: Final = 32_767
MOST_ENTRIES: Final = 32_768
"""The default limit of array items and tagged fields in a request."""
_SMALL: Final = tuple(bytes([n]) for n in range(0x80))
DECODE_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError, ValueError)
"""The errors of readers, besides `MalformedMessageError`, if bytes are missing or not UTF-8."""


class Meter:
    """Counts the entries (array items and tagged fields) of a message, up to a limit."""

    __slots__ = ("_left", "_most")

    def __init__(self, most_entries: int) -> None:
        self._left = self._most = most_entries

    @property
    def taken(self) -> int:
        """The number of entries counted."""
        return self._most - self._left

    def take(self, count: int) -> None:
        """Count `count` more entries. Raises `MalformedMessageError` beyond the limit."""
        self._left -= count
        if self._left < 0:
            raise MalformedMessageError(f"malformed message: it has more than {self._most:,} entries")


def malformed(what: str, error: Exception) -> MalformedMessageError:
    """Return the `MalformedMessageError` for one of `DECODE_ERRORS`."""
    # Python's own texts for these errors mention buffers and dimensions.
    reason = "it ends too early" if isinstance(error, IndexError | struct.error) else error
    return MalformedMessageError(f"malformed {what}: {reason}")


def read_string(buffer: Buffer, offset: int, *, flexible: bool) -> tuple[str | None, int]:
    """Read a nullable string."""
    if flexible:
        length = buffer[offset] - 1
        if length < 0x7F:
            offset += 1
        else:
            length, offset = read_unsigned_varint(buffer, offset)
            length -= 1
            if length > LONGEST_STRING_BYTES:
                raise MalformedMessageError(f"malformed message: a string of {length} bytes")
    else:
        (length,) = INT16.unpack_from(buffer, offset)
        offset += 2
    if length < 0:
        return None, offset
    end = offset + length
    if end > len(buffer):
        raise _beyond(buffer, offset, length)
    return str(buffer[offset:end], "utf-8"), end


def read_text(buffer: Buffer, offset: int, *, flexible: bool) -> tuple[str, int]:
    """Read a string that must not be null."""
    value, offset = read_string(buffer, offset, flexible=flexible)
    if value is None:
        raise MalformedMessageError("malformed message: a string that must be there is null")
    return value, offset


def read_view(buffer: memoryview, offset: int, *, flexible: bool) -> tuple[memoryview | None, int]:
    """Read nullable bytes as a view, without a copy."""
    if flexible:
        length = buffer[offset] - 1
        if length < 0x7F:
            offset += 1
        else:
            length, offset = read_unsigned_varint(buffer, offset)
            length -= 1
    else:
        (length,) = INT32.unpack_from(buffer, offset)
        offset += 4
    if length < 0:
        return None, offset
    end = offset + length
    if end > len(buffer):
        raise _beyond(buffer, offset, length)
    return buffer[offset:end], end


def read_count(buffer: Buffer, offset: int, *, flexible: bool, nullable: bool = False) -> tuple[int, int]:
    """Read the number of items in an array; -1 for null if `nullable`. It may exceed the buffer's size."""
    if flexible:
        count, offset = read_unsigned_varint(buffer, offset)
        count -= 1
    else:
        (count,) = INT32.unpack_from(buffer, offset)
        offset += 4
    if count < -nullable:
        raise MalformedMessageError(f"malformed message: an array can't have {count} items")
    return count, offset


def read_uuid(buffer: Buffer, offset: int) -> tuple[uuid.UUID | None, int]:
    """Read a UUID of 16 bytes; None if all are zero."""
    end = _end(buffer, offset, 16)
    return _uuid(bytes(buffer[offset:end])), end


def read_tags(
    buffer: Buffer, offset: int, known: Container[int], meter: Meter | None = None
) -> tuple[dict[int, tuple[int, int]], int]:
    """Read a section of tagged fields; return the `known` ones as `{tag: (start, end)}`, and the offset after it."""
    tags: dict[int, tuple[int, int]] = {}
    count, offset = read_unsigned_varint(buffer, offset)
    if meter is not None:
        meter.take(count)
    for _ in range(count):
        tag, offset = read_unsigned_varint(buffer, offset)
        size, offset = read_unsigned_varint(buffer, offset)
        end = _end(buffer, offset, size)
        if tag in known:
            tags[tag] = (offset, end)
        offset = end
    return tags, offset


def skip_tags(buffer: Buffer, offset: int, meter: Meter | None = None) -> int:
    """Skip a section of tagged fields; return the offset after it."""
    if buffer[offset] == 0:
        return offset + 1
    return read_tags(buffer, offset, (), meter)[1]


def tag_ended(offset: int, end: int) -> None:
    """Raise `MalformedMessageError` unless `offset`, up to which a tagged field was read, is its `end`."""
    if offset != end:
        raise MalformedMessageError(f"malformed message: a tagged field ends at {end}, what is in it at {offset}")


def encode_string(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    data = value.encode()
    return (encode_length(len(data), flexible=True) if flexible else INT16.pack(len(data))) + data


def encode_length(length: int, *, flexible: bool) -> bytes:
    """Encode the length of bytes, records or an array; -1 is null."""
    if flexible and length < 0x7F:
        return _SMALL[length + 1]
    return encode_unsigned_varint(length + 1) if flexible else INT32.pack(length)


def encode_uuid(value: uuid.UUID | None) -> bytes:
    """Encode a UUID as 16 bytes; None as zeros."""
    return NO_UUID if value is None else value.bytes


def encode_tags(tags: list[tuple[int, bytes]]) -> bytes:
    """Encode a section of tagged fields, given as `(tag, bytes)` in the order of tags."""
    parts = [encode_unsigned_varint(len(tags))]
    for tag, data in tags:
        parts += (encode_unsigned_varint(tag), encode_unsigned_varint(len(data)), data)
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> uuid.UUID | None:
    """Return the UUID; None if all bytes are zero. Cached: creating the object is slow, and topic ids repeat."""
    return None if data == NO_UUID else uuid.UUID(bytes=data)


def _end(buffer: Buffer, offset: int, length: int) -> int:
    end = offset + length
    if end > len(buffer):
        raise _beyond(buffer, offset, length)
    return end


def _beyond(buffer: Buffer, offset: int, length: int) -> MalformedMessageError:
    return MalformedMessageError(f"malformed message: {length} bytes at {offset} where {len(buffer)} are all")
