"""Java's `String.hashCode`: it places coordinators, and the keys and partitions of Kafka 0.8."""

from functools import lru_cache
from typing import Final

_INT: Final = 1 << 32


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % _INT
    return value - _INT if value >= _INT // 2 else value


def positive_java_hash(text: str) -> int:
    """Return `abs(hashCode)`, or 0 for `Integer.MIN_VALUE`, as Kafka does."""
    value = abs(java_hash(text))
    return 0 if value == _INT // 2 else value


@lru_cache(maxsize=4096)
def _hash_of_key(key: str) -> int:
    return positive_java_hash(key)


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the internal topic's partition for a group or transactional id: Java's `abs(key.hashCode()) % count`."""
    return _hash_of_key(key) % partition_count
