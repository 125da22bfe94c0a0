"""The four codecs of record batches, bounded: nothing is ever decompressed past `max_bytes`.

How each is framed, and who does the work, is in `codecs`, which is imported when something is compressed: a megabyte
and a half that a broker whose clients compress nothing, and that looks into nothing, can do without.
"""

from enum import IntEnum
from typing import Final

from odradek.protocol.errors import CorruptBatchError

Buffer = bytes | bytearray | memoryview
"""What the codecs take: anything of bytes, without a copy."""

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""The usual bound on one batch's records. Kafka's own limits are on compressed bytes; this one is for bombs."""


class DecompressedSizeError(CorruptBatchError):
    """Data that takes more bytes once decompressed than its reader allows."""


class Codec(IntEnum):
    """How a batch's records are compressed, by the number in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> Buffer:
    """`data` in the codec's frame, at `level` of KIP-390 or at Kafka's default. `NONE` gives `data` itself.

    Levels: gzip 1 to 9 and -1, its own default; lz4 1 to 17, of which 9 is the fast one, as in Kafka; zstd up to 22.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol import codecs

    return codecs.compress(codec, data, level)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """What was compressed. `NONE` gives `data` itself, whatever its size.

    Raises `CorruptBatchError` for data that is not the codec's, is cut, or takes more than `max_bytes` decompressed.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol import codecs

    return codecs.decompress(codec, data, max_bytes)
