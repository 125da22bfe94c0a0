"""Implements the compression codecs with Kafka's framing: gzip by zlib, the others by cramjam.

Data is framed as by Kafka's Java client, the strictest reader in use:

```
gzip    one member (any number are read)
snappy  xerial: 82 "SNAPPY" 00 | version int32 | compatible int32 | { size int32 | raw snappy of ≤ 32 KiB }*
lz4     a frame of independent blocks of ≤ 64 KiB without checksums
zstd    a frame with its content size
```
Raw snappy and other lz4 or zstd frames can also be read; Java refuses lz4 blocks that refer to earlier blocks.
"""

import struct
import zlib
from typing import Any, Final

import cramjam

from odradek.model import Buffer
from odradek.protocol.batches.compression import Codec, DecompressedSizeError
from odradek.protocol.errors import CorruptBatchError

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC: Final = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_LZ4_MAGIC: Final = 0x184D2204
# After the magic: flags (version 01, independent blocks, no checksums or content size), block size 64 KiB, and a
# checksum of these two bytes.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_STORED: Final = 0x80000000
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_ZSTD_LEVEL: Final = 3
_LZ4_LEVEL: Final = 9
_LZ4_HIGH_LEVELS: Final = range(2, 13)
_MOST_PIECES: Final = 16 << 10
"""Limit of the gzip members, blocks and frames of one batch, of which each costs time, however small it is.

Kafka's clients write one member or frame, and blocks of 32 KiB and more: so many blocks hold twice
`MAX_DECOMPRESSED_BYTES`. Members are limited to `_MOST_MEMBERS`, as zlib copies the rest of the data for each.
"""
_MOST_MEMBERS: Final = 16
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_UINT32: Final = struct.Struct("<I")
_INT32: Final = struct.Struct(">i")


def compress(codec: Codec, data: Buffer, level: int | None) -> bytes:
    """Implement `compression.compress` for all codecs except `NONE`."""
    if codec == Codec.GZIP:
        return zlib.compress(data, -1 if level is None else level, wbits=31)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, _LZ4_LEVEL if level is None else level)
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> Buffer:
    """Implement `compression.decompress` for all codecs except `NONE`."""
    try:
        if codec == Codec.GZIP:
            return _decompress_gzip(data, max_bytes)
        if codec == Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        if codec == Codec.LZ4:
            return _decompress_into(cramjam.lz4, data, _lz4_bound(data), max_bytes)
        return _decompress_into(cramjam.zstd, data, _zstd_bound(data), max_bytes)
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError, ValueError) as error:
        raise CorruptBatchError(f"the batch's {codec.name.lower()} data can't be decompressed: {error}") from error


def _decompress_into(module: Any, data: Buffer, bound: int, max_bytes: int) -> memoryview:
    """Decompress `data`; `bound` is an upper bound of the result, which may have at most `max_bytes`."""
    output = bytearray(min(bound, max_bytes))
    try:
        return memoryview(output)[: module.decompress_into(data, output)]
    except cramjam.DecompressionError as error:
        if bound > max_bytes:
            raise _too_large(max_bytes) from error
        raise


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    members: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while rest:
        if len(members) == _MOST_MEMBERS:
            raise ValueError(f"it has more than {_MOST_MEMBERS} gzip members")
        decompressor = zlib.decompressobj(wbits=31)
        members.append(decompressor.decompress(rest, room + 1))
        room -= len(members[-1])
        if room < 0:
            raise _too_large(max_bytes)
        if not decompressor.eof:
            raise ValueError("it ends too early")
        rest = decompressor.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> memoryview:
    """Decompress xerial snappy, or raw snappy, which cannot start with xerial's eight magic bytes."""
    if data[:8] != _XERIAL_MAGIC:
        blocks = [data]
    else:
        blocks = []
        position = len(_XERIAL_HEADER)
        while position < len(data):
            (size,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            if not 0 < size <= len(data) - position:
                raise ValueError("a block is longer than the data")
            blocks.append(data[position : position + size])
            position += size
            _count(len(blocks))
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise _too_large(max_bytes)
    output = memoryview(bytearray(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        if cramjam.snappy.decompress_raw_into(block, output[position : position + size]) != size:
            raise ValueError("a block is shorter than it says")
        position += size
    return output


def _compress_lz4(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block: Buffer = view[start : start + _LZ4_BLOCK_BYTES]
        compressed = _compress_lz4_block(block, level)
        if len(compressed) < len(block):
            parts += (_UINT32.pack(len(compressed)), compressed)
        else:
            parts += (_UINT32.pack(len(block) | _LZ4_STORED), bytes(block))
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def _compress_lz4_block(block: Buffer, level: int) -> bytes:
    """Compress one independent block.

    cramjam's block compressor has one level; for other levels the block is taken from a compressed frame of one block.
    """
    if level == _LZ4_LEVEL:
        return bytes(cramjam.lz4.compress_block(block, store_size=False))
    level = min(max(level, _LZ4_HIGH_LEVELS[0]), _LZ4_HIGH_LEVELS[-1])
    frame = bytes(cramjam.lz4.compress(block, level=level))
    start = len(_LZ4_HEADER) + _UINT32.size
    (size,) = _UINT32.unpack_from(frame, len(_LZ4_HEADER))
    if size & _LZ4_STORED:
        return bytes(block)
    return frame[start : start + size]


def _lz4_bound(data: Buffer) -> int:
    """Return an upper bound of the decompressed size, from the block headers: Java's frames have no content size."""
    total = position = pieces = 0
    while position < len(data):
        (magic,) = _UINT32.unpack_from(data, position)
        position += 4
        pieces += 1
        _count(pieces)
        if magic in _SKIPPABLE:
            position += 4 + _UINT32.unpack_from(data, position)[0]
            continue
        if magic != _LZ4_MAGIC:
            raise ValueError("it is not an lz4 frame")
        flags, block = data[position], (data[position + 1] >> 4) & 7
        block_bytes = 1 << (8 + 2 * block)
        position += 3 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while (size := _UINT32.unpack_from(data, position)[0]) != 0:
            # A block of n bytes decompresses to at most 255 n: a match costs at least a byte per 255 bytes.
            size &= ~_LZ4_STORED
            pieces += 1
            _count(pieces)
            total += min(block_bytes, size * 255)
            position += 4 + size + (4 if flags & 0x10 else 0)
        position += 4 + (4 if flags & 0x04 else 0)
    return total


def _zstd_bound(data: Buffer) -> int:
    """Return an upper bound of the decompressed size, from the headers of frames and blocks."""
    total = position = pieces = 0
    while position < len(data):
        (magic,) = _UINT32.unpack_from(data, position)
        position += 4
        pieces += 1
        _count(pieces)
        if magic in _SKIPPABLE:
            position += 4 + _UINT32.unpack_from(data, position)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise ValueError("it is not a zstd frame")
        descriptor = data[position]
        single_segment = bool(descriptor & 0x20)
        size_bytes = (int(single_segment), 2, 4, 8)[descriptor >> 6]
        position += 1 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        content_size = int.from_bytes(data[position : position + size_bytes], "little")
        position, bound, blocks = _walk_zstd_blocks(data, position + size_bytes)
        pieces += blocks
        position += 4 if descriptor & 0x04 else 0
        if size_bytes:
            bound = min(bound, content_size + 256 if size_bytes == 2 else content_size)
        total += bound
    return total


def _walk_zstd_blocks(data: Buffer, position: int) -> tuple[int, int, int]:
    """Return the position after the frame's last block, a bound of the decompressed size, and the number of blocks."""
    bound = blocks = 0
    while True:
        blocks += 1
        _count(blocks)
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += 3
        kind, size = (header >> 1) & 3, header >> 3
        bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
        position += 1 if kind == 1 else size
        if header & 1:
            return position, bound, blocks


def _count(pieces: int) -> None:
    if pieces > _MOST_PIECES:
        raise ValueError(f"it has more than {_MOST_PIECES} blocks and frames")


def _too_large(max_bytes: int) -> DecompressedSizeError:
    return DecompressedSizeError(f"the batch's records take more than {max_bytes} bytes once decompressed")
