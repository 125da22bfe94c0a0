"""The partitioner `legacy`, that of Kafka 0.8's producer: Java's hash code of the key's text."""

from collections.abc import Callable
from random import Random
from typing import Final

from odradek.model.java_hash import positive_java_hash
from odradek.partitioners.interface import ClusterView

DEFAULT_REFRESH_MS: Final = 600_000
"""Kafka 0.8's `topic.metadata.refresh.interval.ms`."""


class LegacyPartitioner:
    """Chooses by `abs(hashCode) % partitions` of the key as UTF-8; without a key, a random partition for a while.

    `monotonic` returns seconds. A partition that lost its leader is replaced at once.
    """

    def __init__(
        self, *, entropy: Random, monotonic: Callable[[], float], refresh_ms: int = DEFAULT_REFRESH_MS
    ) -> None:
        self._entropy = entropy
        self._monotonic = monotonic
        self._refresh_s = refresh_ms / 1000
        self._kept: dict[str, tuple[int, float]] = {}
        """Topic → the partition of records without a key, and the second until which it is kept."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None:
            text = bytes(key).decode(errors="replace")
            return positive_java_hash(text) % len(cluster.partitions_for_topic(topic))
        available = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        kept, until = self._kept.get(topic, (-1, 0.0))
        now = self._monotonic()
        if kept not in available or now >= until:
            kept = self._entropy.choice(available)
            self._kept[topic] = (kept, now + self._refresh_s)
        return kept
