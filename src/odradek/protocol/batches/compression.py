"""The four compression codecs of record batches; decompression never produces more than `max_bytes`.

A new codec must also be added in `broker.log.validation`, `config.broker`, `clients.producer.settings` and
`spark.settings`.

`codecs` has the implementations; it takes 1.5 MB of memory, so it is imported at the first use.
"""

from enum import IntEnum
from typing import Final

from odradek.model import Buffer
from odradek.protocol.errors import CorruptBatchError

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""The default limit of a batch's decompressed records, against decompression bombs. Kafka limits only compressed
bytes."""


class DecompressedSizeError(CorruptBatchError):
    """The decompressed data is larger than the reader allows."""


class Codec(IntEnum):
    """A batch's compression codec, with its number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> Buffer:
    """Return the compressed `data`; for `NONE` `data` itself. A `level` of None is Kafka's default (KIP-390).

    Levels: gzip 1 to 9, or -1 for its default; lz4 1 to 17, where 9 is the fast one, as in Kafka; zstd up to 22.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol.batches import codecs

    return codecs.compress(codec, data, level)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Return the decompressed data; for `NONE` `data` itself, of any size.

    Raises `CorruptBatchError` for data of another codec and truncated data, `DecompressedSizeError` above `max_bytes`.
    """
    if codec == Codec.NONE:
        return data
    from odradek.protocol.batches import codecs

    return codecs.decompress(codec, data, max_bytes)
