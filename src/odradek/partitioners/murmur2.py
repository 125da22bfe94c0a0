"""Kafka's murmur2, bit for bit as in the Java client, so that every client sends a key to the same partition.

```
h = seed ^ length;  for each little-endian 4-byte block k:  k *= m;  k ^= k >> 24;  k *= m;  h = h * m ^ k
the 1 to 3 bytes that are left:  h ^= them (little-endian);  h *= m
h ^= h >> 13;  h *= m;  h ^= h >> 15
```
All arithmetic is modulo 2**32. It is plain Python, because for short keys a numpy call is slower. The hashes of short
keys are cached.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

_BLOCKS: Final = tuple(Struct(f"<{count}I").unpack_from for count in range(17))
"""Unpackers of 0 to 16 blocks; longer keys create one per call."""
_MAX_CACHED_LENGTH: Final = 64
"""The length of the longest cached key, in bytes; 16,384 keys take about 4 MB."""


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit number (signed in Java)."""
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


_cached_murmur2 = lru_cache(maxsize=16384)(murmur2)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return `(murmur2(key) & 0x7fffffff) % partition_count`, as Kafka's Java client does (SPEC 2)."""
    h = _cached_murmur2(key) if len(key) <= _MAX_CACHED_LENGTH else murmur2(key)
    return (h & _POSITIVE) % partition_count
