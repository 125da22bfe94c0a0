"""The partitioner `adaptive`, Kafka's default since 3.3 (KIP-794): sticky by bytes, weighted by the brokers' speed.

The producer calls `on_appended` for each record that was placed without its key, and `update_load` when its sender
runs. A partition with fewer waiting batches is chosen more often, so that a slow broker gets fewer records.
"""

from bisect import bisect_right
from itertools import accumulate
from random import Random
from typing import Final

from msgspec import Struct, field

from odradek.partitioners.interface import ClusterView, KeyRule
from odradek.partitioners.murmur2 import partition_for_key

DEFAULT_BATCH_SIZE: Final = 16384
"""Kafka's `batch.size`, in bytes."""


class _Topic(Struct):
    """A topic's sticky partition with its appended bytes; `sums` are the cumulative weights of partitions `numbers`.

    Without weights, the next choice is uniform.
    """

    partition: int | None = None
    produced_bytes: int = 0
    numbers: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)


class AdaptivePartitioner:
    """Chooses by key, unless `ignore_keys`; without a key, a sticky partition that changes after `batch_size` bytes."""

    def __init__(
        self, *, entropy: Random, batch_size: int = DEFAULT_BATCH_SIZE, ignore_keys: bool = False, adaptive: bool = True
    ) -> None:
        """Create a partitioner; `adaptive` is Kafka's `partitioner.adaptive.partitioning.enable`.

        Raises `ValueError` if `batch_size` < 1.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 byte, not {batch_size}")
        self._entropy = entropy
        self._batch_size = batch_size
        self._ignore_keys = ignore_keys
        self.key_rule = KeyRule.IGNORED if ignore_keys else KeyRule.MURMUR2
        self._adaptive = adaptive
        self._topics: dict[str, _Topic] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, len(cluster.partitions_for_topic(topic)))
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = _Topic()
        if state.partition is None:
            state.partition = self._choose(topic, state, cluster)
        return state.partition

    def on_appended(
        self, topic: str, partition: int, appended_bytes: int, cluster: ClusterView, *, batch_ready: bool
    ) -> None:
        """Count the bytes of a record that was placed without its key.

        The sticky partition changes after `batch_size` bytes if `batch_ready`, so that no small batch is left behind,
        and after twice as many bytes in any case, so that partitions stay balanced.
        """
        state = self._topics.get(topic)
        if state is None or state.partition != partition:
            return
        state.produced_bytes += appended_bytes
        if state.produced_bytes >= self._batch_size * (1 if batch_ready else 2):
            state.partition = self._choose(topic, state, cluster)
            state.produced_bytes = 0

    def update_load(self, topic: str, queue_sizes: dict[int, int], *, partition_count: int) -> None:
        """Weight each partition by `max_queue + 1 - queue`; if all have the same queue, the choice is uniform.

        Partitions that are not in `queue_sizes` are not chosen, unless `queue_sizes` is empty.
        """
        if not self._adaptive:
            return
        state = self._topics.setdefault(topic, _Topic())
        skipped = len(queue_sizes) < partition_count
        if not queue_sizes or partition_count < 2 or (not skipped and len(set(queue_sizes.values())) == 1):
            state.numbers, state.sums = [], []
            return
        most = max(queue_sizes.values()) + 1
        state.numbers = list(queue_sizes)
        state.sums = list(accumulate(most - queue for queue in queue_sizes.values()))

    def _choose(self, topic: str, state: _Topic, cluster: ClusterView) -> int:
        if state.sums:
            return state.numbers[bisect_right(state.sums, self._entropy.randrange(state.sums[-1]))]
        even = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return self._entropy.choice(even)


def sticky_bytes(partitioner: AdaptivePartitioner, topic: str, partition: int) -> tuple[int, int]:
    """Return how many more bytes go to `partition`, if it is the sticky one, before another may be chosen.

    The second number is for as long as no batch is ready.
    """
    state = partitioner._topics.get(topic)
    if state is None or state.partition != partition:
        return 0, 0
    left = partitioner._batch_size - state.produced_bytes
    return left, left + partitioner._batch_size
