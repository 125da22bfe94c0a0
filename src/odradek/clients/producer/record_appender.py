"""Appends a record to the batch of its partition, which it chooses if none is given."""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from odradek.clients.metadata import ClusterMetadata
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.producer_batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.record_accumulator import PartitionQueue, RecordAccumulator
from odradek.model import TopicPartition
from odradek.protocol.batches.records import Headers


class _Sticky(Struct):
    """The queue that the partitioner has chosen for a topic's next bytes without keys.

    It may choose again after `bytes_left` if a batch is ready, and after `most_bytes_left` in any case. Then it gets
    the sum, `bytes_appended`, instead of a call for each record.
    """

    queue: PartitionQueue
    metadata: ClusterMetadata
    bytes_left: int
    most_bytes_left: int
    bytes_appended: float = 0.0


class RecordAppender:
    """Appends the records of one producer; `ignore_keys` is `partitioner.ignore.keys`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        placer: RecordPlacer,
        monotonic: Callable[[], float],
        *,
        ignore_keys: bool,
    ) -> None:
        self._accumulator = accumulator
        self._placer = placer
        self._monotonic = monotonic
        self._ignore_keys = ignore_keys
        self._sticky: dict[str, _Sticky] = {}

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata],
        metadata: ClusterMetadata,
    ) -> ProducerBatch:
        """Choose the partition if it is None, and append; return the batch."""
        accumulator, placer = self._accumulator, self._placer
        if partition is not None:
            placed = TopicPartition(topic, partition)
            return accumulator.append(placed, timestamp, key, value, headers, future, self._monotonic())
        is_without_key = key is None or self._ignore_keys
        if is_without_key and (sticky := self._sticky.get(topic)) is not None:
            waiting = sticky.queue.waiting
            if waiting and sticky.metadata is metadata:
                batch = waiting[-1]
                grown = batch.append(timestamp, key, value, headers, future)
                if grown:
                    accumulator.used_bytes += grown
                    sticky.bytes_appended += grown * batch.ratio
                    if sticky.bytes_appended >= sticky.bytes_left and (
                        accumulator.is_full(sticky.queue) or sticky.bytes_appended >= sticky.most_bytes_left
                    ):
                        self._notify(topic, sticky.queue, sticky.bytes_appended, metadata)
                    return batch
            self._notify(topic, sticky.queue, sticky.bytes_appended, metadata)
        placed = TopicPartition(topic, placer.partition(topic, key, value, metadata))
        if placer.is_batch_aware:
            queue = accumulator.queues.get(placed)
            open_batch = queue and accumulator.try_append(queue, timestamp, key, value, headers, future)
            if open_batch:
                return open_batch
            # The batch is full: sticky partitioners choose another partition now (KIP-480).
            placer.on_new_batch(topic, metadata, placed.partition)
            placed = TopicPartition(topic, placer.partition(topic, key, value, metadata))
        before = accumulator.used_bytes
        batch = accumulator.append(placed, timestamp, key, value, headers, future, self._monotonic())
        if placer.is_load_aware and is_without_key:
            appended_bytes = (accumulator.used_bytes - before) * batch.ratio
            self._notify(topic, accumulator.queues[placed], appended_bytes, metadata)
        return batch

    def _notify(self, topic: str, queue: PartitionQueue, appended_bytes: float, metadata: ClusterMetadata) -> None:
        """Notify the partitioner of bytes without a key, so that it may choose again."""
        is_ready = bool(queue.waiting) and self._accumulator.is_full(queue)
        partition = queue.partition.partition
        self._placer.on_appended(topic, partition, round(appended_bytes), metadata, batch_ready=is_ready)
        bytes_left, most_bytes_left = self._placer.sticky_bytes(topic, partition)
        if most_bytes_left > 0:
            self._sticky[topic] = _Sticky(queue, metadata, bytes_left, most_bytes_left)
        else:
            self._sticky.pop(topic, None)
