"""Round-robin partitioners: `classic`, Kafka's default until 2.3, and `round_robin`, Kafka's RoundRobinPartitioner."""

from itertools import count
from random import Random

from odradek.partitioners.interface import ClusterView, KeyRule
from odradek.partitioners.murmur2 import partition_for_key

_POSITIVE = 0x7FFFFFFF


class _Counters:
    """One counter per topic, starting at `_start()`."""

    def __init__(self) -> None:
        self._counters: dict[str, count[int]] = {}

    def _start(self) -> int:
        return 0

    def _next(self, topic: str, cluster: ClusterView) -> int:
        """Return the next available partition, or the next of all partitions if none is available."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._counters[topic] = count(self._start())
        ring = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return ring[(next(counter) & _POSITIVE) % len(ring)]


class ClassicPartitioner(_Counters):
    """By key; records without a key go round-robin to the available partitions, starting at a random one."""

    key_rule = KeyRule.MURMUR2

    def __init__(self, *, entropy: Random) -> None:
        super().__init__()
        self._entropy = entropy

    def _start(self) -> int:
        return self._entropy.getrandbits(31)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None:
            return partition_for_key(key, len(cluster.partitions_for_topic(topic)))
        return self._next(topic, cluster)


class RoundRobinPartitioner(_Counters):
    """Round-robin to the available partitions, whatever the key, starting at the first one."""

    key_rule = KeyRule.IGNORED

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        return self._next(topic, cluster)
