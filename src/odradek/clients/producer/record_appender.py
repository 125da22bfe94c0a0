"""Appends a record to the batch of its partition, which it chooses if none is given."""

import asyncio

from odradek.clients.metadata import ClusterMetadata
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.producer_batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.model import TopicPartition
from odradek.protocol.batches.records import Headers


class RecordAppender:
    """Appends the records of one producer; `ignore_keys` is `partitioner.ignore.keys`."""

    def __init__(self, accumulator: RecordAccumulator, placer: RecordPlacer, *, ignore_keys: bool) -> None:
        self._accumulator = accumulator
        self._placer = placer
        self._ignore_keys = ignore_keys

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
        now: float,
    ) -> ProducerBatch:
        """Choose the partition if it is None, and append; return the batch."""
        accumulator = self._accumulator
        if partition is not None:
            placed = TopicPartition(topic, partition)
            return _appended(accumulator.append(placed, timestamp, key, value, headers, future, now))
        placer, new = self._placer, tuple.__new__
        # A call of the named tuple's constructor takes a tenth of a short `send`.
        placed = new(TopicPartition, (topic, placer.partition(topic, key, value, metadata)))
        if placer.is_batch_aware:
            batch = accumulator.append(placed, timestamp, key, value, headers, future, now, allow_new_batch=False)
            if batch is not None:
                return batch
            # The batch is full: sticky partitioners choose another partition now (KIP-480).
            placer.on_new_batch(topic, metadata, placed.partition)
            placed = TopicPartition(topic, placer.partition(topic, key, value, metadata))
        before = accumulator.used_bytes
        batch = _appended(accumulator.append(placed, timestamp, key, value, headers, future, now))
        if placer.is_load_aware and (key is None or self._ignore_keys):
            grown = round((accumulator.used_bytes - before) * batch.ratio)
            is_ready = accumulator.is_full(accumulator.queues[placed])
            placer.on_appended(topic, placed.partition, grown, metadata, batch_ready=is_ready)
        return batch


def _appended(batch: ProducerBatch | None) -> ProducerBatch:
    assert batch is not None
    return batch
