"""Round-robin partitioners: `classic`, Kafka's default until 2.3, and `round_robin`, Kafka's RoundRobinPartitioner."""

from itertools import count
from random import Random

from odradek.partitioners.interface import ClusterView, KeyRule
from odradek.partitioners.murmur2 import partition_for_key

_POSITIVE = 0x7FFFFFFF


class _Counters:
    """A round-robin counter for each topic, starting at `_start()`."""

    def __init__(self) -> None:
        self._counters: dict[str, count[int]] = {}

    def _start(self) -> int:
        return 0

    def _next(self, topic: str, cluster: ClusterView) -> int:
        """Return the next partition that has a leader, or the next of all partitions if none has."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._counters[topic] = count(self._start())
        ring = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return ring[(next(counter) & _POSITIVE) % len(ring)]


class ClassicPartitioner(_Counters):
    """Chooses by key; without a key, round-robin over the partitions with a leader, from a random one."""

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
    """Ignores keys: round-robin over the partitions with a leader, from the first one."""

    key_rule = KeyRule.IGNORED

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        return self._next(topic, cluster)
