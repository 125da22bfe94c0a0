"""Brokers that have accepted no batches for `partitioner.availability.timeout.ms` (KIP-794)."""

from collections.abc import Sequence

from msgspec import Struct

from odradek.clients.metadata import ClusterMetadata
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.model import TopicPartition


class _Times(Struct):
    """The monotonic seconds when batches were last ready to send, and when the broker could last accept them."""

    due_at: float
    drained_at: float


class BrokerReadiness:
    """The availability of brokers for partitioners; all are available with a timeout of 0."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._times: dict[int, _Times] = {}

    def update(self, node_id: int, now: float, *, is_ready: bool) -> None:
        """Record that batches are ready to send; `is_ready` if the broker's connection is open and has capacity."""
        times = self._times.get(node_id)
        if times is None:
            times = self._times[node_id] = _Times(now, now)
        times.due_at = now
        if is_ready:
            times.drained_at = now

    def is_available(self, node_id: int | None) -> bool:
        """Return whether the broker could accept ready batches within the timeout; True for an unknown broker."""
        times = None if node_id is None or not self._timeout_s else self._times.get(node_id)
        return times is None or times.due_at - times.drained_at <= self._timeout_s


def update_load(
    placer: RecordPlacer, accumulator: RecordAccumulator, metadata: ClusterMetadata, readiness: BrokerReadiness
) -> None:
    """Pass to the partitioner the queue length of each partition whose broker is available."""
    queues = accumulator.queues
    for topic in dict.fromkeys(partition.topic for partition in queues):
        available: Sequence[int] = metadata.available_partitions_for_topic(topic)
        sizes: dict[int, int] = {}
        for number in available:
            partition = TopicPartition(topic, number)
            if readiness.is_available(metadata.leader(partition)):
                queue = queues.get(partition)
                sizes[number] = 0 if queue is None else len(queue.waiting) + len(queue.retrying)
        placer.update_load(topic, sizes, partition_count=len(available))
