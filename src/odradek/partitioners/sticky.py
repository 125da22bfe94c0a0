"""Sticky partitioners (KIP-480): `sticky`, Kafka's default from 2.4 to 3.2, and `uniform_sticky`."""

from random import Random

from odradek.partitioners.interface import ClusterView, KeyRule
from odradek.partitioners.murmur2 import partition_for_key


class UniformStickyPartitioner:
    """Ignores keys: one partition per topic until a batch is full (Kafka's UniformStickyPartitioner)."""

    key_rule = KeyRule.IGNORED

    def __init__(self, *, entropy: Random) -> None:
        self._entropy = entropy
        self._sticky: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        current = self._sticky.get(topic)
        return self._choose(topic, cluster, None) if current is None else current

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        """Change the sticky partition, unless a concurrent call has changed it from `previous`."""
        current = self._sticky.get(topic)
        if current is None or current == previous:
            self._choose(topic, cluster, current)

    def _choose(self, topic: str, cluster: ClusterView, current: int | None) -> int:
        available = cluster.available_partitions_for_topic(topic)
        if not available:
            chosen = self._entropy.choice(cluster.partitions_for_topic(topic))
        elif len(available) == 1:
            chosen = available[0]
        else:
            others = [number for number in available if number != current]
            chosen = self._entropy.choice(others)
        self._sticky[topic] = chosen
        return chosen


class StickyPartitioner(UniformStickyPartitioner):
    """Chooses by key; without a key, one partition per topic until a batch is full."""

    key_rule = KeyRule.MURMUR2

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None:
            return partition_for_key(key, len(cluster.partitions_for_topic(topic)))
        return super().partition(topic, None, value, cluster)
