"""Counters in a ring: `classic`, Kafka's default until 2.3, and `round_robin`, its class of that name."""

from itertools import count
from random import Random

from odradek.partitioners.interface import ClusterView
from odradek.partitioners.murmur2 import partition_for_key

_POSITIVE = 0x7FFFFFFF


class _Counters:
    """One counter per topic; each starts where `start` says."""

    def __init__(self) -> None:
        self._counters: dict[str, count[int]] = {}

    def _start(self) -> int:
        return 0

    def _next(self, topic: str, cluster: ClusterView) -> int:
        """The next available partition in the ring; the next of all where none is available."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._counters[topic] = count(self._start())
        ring = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return ring[(next(counter) & _POSITIVE) % len(ring)]


class ClassicPartitioner(_Counters):
    """By key; without one in a ring over the available partitions, from a random start (Kafka's default until 2.3)."""

    def __init__(self, *, entropy: Random) -> None:
        super().__init__()
        self._entropy = entropy

    def _start(self) -> int:
        return self._entropy.getrandbits(31)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        """See `Partitioner`."""
        if key is not None:
            return partition_for_key(key, len(cluster.partitions_for_topic(topic)))
        return self._next(topic, cluster)


class RoundRobinPartitioner(_Counters):
    """In a ring over the available partitions from the first one, whatever the key (Kafka's RoundRobinPartitioner)."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        """See `Partitioner`."""
        return self._next(topic, cluster)
