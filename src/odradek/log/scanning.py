"""A segment's batches as they lie in the file, without trust: each with its bytes, up to the first that cannot be one.

For recovery's sisters, the dump and the verification; what is read is never changed, and the file may still grow.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.log.errors import CutFileError, DamagedFileError
from odradek.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from odradek.runtime import File

_READ_BYTES: Final = 1 << 20


class FoundBatch(NamedTuple):
    """A batch that is whole. Its `data` is good until the next one is asked for."""

    position: int
    header: BatchHeader
    data: memoryview


def scan_file(
    file: File, path: str, size: int, *, position: int = 0, read_bytes: int = _READ_BYTES
) -> Iterator[FoundBatch]:
    """The batches in the first `size` bytes of a `.log` file, of which neither CRC nor offsets are checked.

    `position` is where one begins; `read_bytes` are read at once, or a batch that is larger. Raises
    `DamagedFileError` where no batch can begin, `CutFileError` where one does not end, and `OSError`.
    """
    chunk, start = memoryview(b""), position
    while position < size:
        if size - position < HEADER_SIZE:
            raise CutFileError(path, position, f"ends with {size - position} bytes of a batch")
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = _read(file, path, position, min(read_bytes, size - position)), position
        header = _header(chunk[position - start :], path, position)
        if position + header.size > size:
            raise CutFileError(
                path, position, f"ends with {size - position} bytes of a batch that says it has {header.size}"
            )
        if position + header.size > start + len(chunk):
            length = min(max(read_bytes, header.size), size - position)
            chunk, start = _read(file, path, position, length), position
        first = position - start
        yield FoundBatch(position, header, chunk[first : first + header.size])
        position += header.size


def _read(file: File, path: str, position: int, length: int) -> memoryview:
    data = file.read(position, length)
    if len(data) < length:
        raise CutFileError(path, position, f"became shorter while it was read: {len(data)} of {length} bytes are there")
    return memoryview(data)


def _header(chunk: memoryview, path: str, position: int) -> BatchHeader:
    header = read_header(chunk)
    if not any(chunk[:HEADER_SIZE]):
        raise DamagedFileError(path, position, "has zeros where a batch should begin")
    if header.magic in (0, 1):
        raise DamagedFileError(
            path, position, f"has a batch of message format {header.magic}, which Kafka 4 dropped, or a damaged one"
        )
    if header.magic != MAGIC:
        raise DamagedFileError(path, position, f"has a batch of the unknown magic {header.magic}")
    if header.size < HEADER_SIZE:
        raise DamagedFileError(path, position, f"has a batch that says it has {header.size} bytes")
    return header
