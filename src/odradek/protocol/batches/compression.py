"""The four compression codecs of record batches; decompression never produces more than `max_bytes`.

A new codec is also named in `log.validation`, `config.broker`, `clients.producer.settings` and `spark.settings`.

`codecs` does the work and is imported with the first compression: it takes a megabyte and a half that a broker of
uncompressed topics does not need.
"""

from enum import IntEnum
from typing import Final

from odradek.model import Buffer
from odradek.protocol.errors import CorruptBatchError

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""The default bound on a batch's decompressed records, against decompression bombs. Kafka limits compressed bytes
only."""


class DecompressedSizeError(CorruptBatchError):
    """The data takes more bytes once decompressed than the reader allows."""


class Codec(IntEnum):
    """A batch's compression codec, by its number in the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> Buffer:
    """Return `data` in the codec's frame, at `level` of KIP-390 or at Kafka's default; `NONE` returns `data` itself.

    Levels: gzip 1 to 9 and -1, its own default; lz4 1 to 17, of which 9 is the fast one, as in Kafka; zstd up to 22.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol.batches import codecs

    return codecs.compress(codec, data, level)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Return the decompressed data; `NONE` returns `data` itself, whatever its size.

    Raises `CorruptBatchError` for data of another codec, for truncated data, and for more than `max_bytes`.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol.batches import codecs

    return codecs.decompress(codec, data, max_bytes)
