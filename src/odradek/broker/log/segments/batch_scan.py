"""Reading a `.log` file batch by batch, and recognizing messages of the formats 0 and 1, which are not damage.

```
 0 offset int64 | 8 size int32, of the rest | 12 crc uint32 (CRC-32 of the rest)
16 magic int8 = 0 or 1 | 17 attributes int8 | 18 timestamp int64, in format 1 only
then, with length -1 for null:      key length int32, key | value length int32, value
```
They are from before Kafka 0.11; Kafka 4 reads, but does not write them. Recovery refuses a log that has one.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
from odradek.broker.log.segments.open_files import PooledFile
from odradek.protocol.batches.record_batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from odradek.runtime import File

_READ_BYTES: Final = 1 << 20
_LEAST_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD


class FoundBatch(NamedTuple):
    """A whole batch. Its `data` is valid until the next batch is read."""

    position: int
    header: BatchHeader
    data: memoryview


def scan_file(
    file: File, path: str, size: int, *, position: int = 0, read_bytes: int = _READ_BYTES
) -> Iterator[FoundBatch]:
    """Yield the batches in the first `size` bytes of a `.log` file; CRCs and offsets are not checked.

    Raises `DamagedFileError` at an invalid header, `TruncatedFileError` at an incomplete batch, and `OSError`.
    """
    chunk, start = memoryview(b""), position
    while position < size:
        if size - position < HEADER_SIZE:
            raise TruncatedFileError(path, position, f"ends with {size - position} bytes of a batch")
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = _read(file, path, position, min(read_bytes, size - position)), position
        header = read_header(chunk, position - start)
        if header.magic != MAGIC or header.batch_length < _LEAST_LENGTH:
            raise _damaged(header, chunk[position - start :], path, position)
        length = header.batch_length + LENGTH_OVERHEAD
        if position + length > size:
            raise TruncatedFileError(
                path, position, f"ends with {size - position} bytes of a batch that declares {length}"
            )
        if position + length > start + len(chunk):
            chunk, start = _read(file, path, position, min(max(read_bytes, length), size - position)), position
        first = position - start
        yield FoundBatch(position, header, chunk[first : first + length])
        position += length


def _read(file: File, path: str, position: int, length: int) -> memoryview:
    data = file.read(position, length)
    if len(data) < length:
        raise TruncatedFileError(
            path, position, f"became shorter while it was read: {len(data)} of {length} bytes are there"
        )
    return memoryview(data)


def _damaged(header: BatchHeader, chunk: memoryview, path: str, position: int) -> DamagedFileError:
    if not any(chunk[:HEADER_SIZE]):
        return DamagedFileError(path, position, "has zeros where a batch should begin")
    if header.magic in (0, 1):
        return DamagedFileError(
            path, position, f"has a batch of message format {header.magic}, from before Kafka 0.11, or a damaged one"
        )
    if header.magic != MAGIC:
        return DamagedFileError(path, position, f"has a batch of the unknown magic {header.magic}")
    return DamagedFileError(path, position, f"has a batch that declares {header.size} bytes")


OLD_FORMATS: Final = (0, 1)
_HEAD: Final = struct.Struct(">qiIb")
_CRC_START: Final = 16
_LENGTH_OVERHEAD: Final = 12
_SHORTEST: Final = {0: 14, 1: 22}
"""The least value of the size field, by format."""
_CHUNK_BYTES: Final = 1 << 20


def old_message(file: File | PooledFile, position: int, size: int) -> int | None:
    """Return the format, 0 or 1, of a valid message at `position` of a file of `size` bytes, or None."""
    if position + _HEAD.size > size:
        return None
    offset, length, crc, magic = _HEAD.unpack(file.read(position, _HEAD.size))
    at, end = position + _CRC_START, position + _LENGTH_OVERHEAD + length
    if offset < 0 or magic not in _SHORTEST or length < _SHORTEST[magic] or end > size:
        return None
    found = 0
    while at < end:
        piece = file.read(at, min(_CHUNK_BYTES, end - at))
        if not piece:
            return None
        found = crc32(piece, found)
        at += len(piece)
    return int(magic) if found == crc else None
