"""Reading a `.log` file batch by batch, up to the first bytes that cannot be a batch."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
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
