"""Kafka's murmur2, bit for bit as the Java client computes it, so that every client puts a key on the same partition.

```
h = seed ^ length;  for each little-endian 4-byte block k:  k *= m;  k ^= k >> 24;  k *= m;  h = h * m ^ k
the 1 to 3 bytes that are left:  h ^= them (little-endian);  h *= m
h ^= h >> 13;  h *= m;  h ^= h >> 15
```
All of it modulo 2**32. Plain Python: a record with a key pays for this on every send, and a call into numpy would cost
more than the few blocks that a key has. Short keys come again and again, so their hashes are remembered.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

_BLOCKS: Final = tuple(Struct(f"<{count}I").unpack_from for count in range(17))
"""Readers of 0 to 16 blocks; keys longer than 67 bytes make their own."""
_REMEMBERED_LENGTH: Final = 64
"""Only keys up to this long are remembered: 16,384 of them cost about 2 MB at most."""


def murmur2(data: bytes) -> int:
    """The hash of `data` as an unsigned 32-bit number (Java's is the same bits, signed)."""
    m, mask = _M, _MASK
    length = len(data)
    count = length >> 2
    h = _SEED ^ length
    for k in _BLOCKS[count](data) if count < 17 else Struct(f"<{count}I").unpack_from(data):
        k = k * m & mask
        h = (h * m ^ (k ^ k >> 24) * m) & mask
    if length & 3:
        h = (h ^ int.from_bytes(data[count << 2 :], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


_remembered = lru_cache(maxsize=16384)(murmur2)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """`(murmur2(key) & 0x7fffffff) % partition_count`: where every Java client puts `key` (SPEC 2)."""
    h = _remembered(key) if len(key) <= _REMEMBERED_LENGTH else murmur2(key)
    return (h & _POSITIVE) % partition_count
