"""Appends transaction markers to partitions that this broker leads, for a coordinator here or on another broker."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from odradek.broker.replication.partition import ACKS_ALL
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.runtime import Clock


class Marker(Struct, frozen=True, kw_only=True):
    """The end of one producer's transaction, and its partitions on one broker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Iterable[TopicPartition]


WhenAppended = Callable[..., None]
"""Called with partition, producer id, end offset and `is_commit` of each appended marker."""
Results = dict[int, dict[TopicPartition, ErrorCode]]
"""The errors by producer id and partition."""


class MarkerWriter:
    """Writes markers; `when_appended` is called for each one that was appended."""

    def __init__(self, partitions: ReplicaManager, clock: Clock, when_appended: WhenAppended) -> None:
        self._partitions = partitions
        self._clock = clock
        self._when_appended = when_appended

    async def write(self, markers: Iterable[Marker]) -> Results:
        """Append markers, and return their errors when all are committed or have failed.

        As in Kafka, markers of one producer for one partition share one error.
        """
        writes = _Writes()
        now_ms = self._clock.now_ms()
        named = ((marker, topic_partition) for marker in markers for topic_partition in marker.partitions)
        async for marker, topic_partition in cooperatively(named, lambda _: 8):
            self._begin(writes, marker, topic_partition, now_ms)
        return await writes.finished()

    def _begin(self, writes: "_Writes", marker: Marker, topic_partition: TopicPartition, now_ms: int) -> None:
        errors = writes.results.setdefault(marker.producer_id, {})
        errors[topic_partition] = ErrorCode.none
        try:
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request)
            partition = self._partitions.leader(*topic_partition)
            kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
            info = partition.append_marker(
                EndTransactionMarker(kind, marker.coordinator_epoch),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_version=marker.transaction_version,
                now_ms=now_ms,
            )
        except KafkaError as error:
            errors[topic_partition] = error.code
        else:
            self._when_appended(topic_partition, marker.producer_id, info.last_offset + 1, is_commit=marker.is_commit)
            writes.waiting += 1
            waiter = partial(writes.acknowledged, errors, topic_partition)
            partition.when_acknowledged(info, acks=ACKS_ALL, waiter=waiter)


class _Writes:
    """The markers of one request that are being written."""

    def __init__(self) -> None:
        self.results: Results = {}
        self.waiting = 0
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def finished(self) -> Results:
        """Return each producer's errors, once all markers are committed or have failed."""
        if self.waiting:
            await self._finished
        return self.results

    def acknowledged(
        self, errors: dict[TopicPartition, ErrorCode], topic_partition: TopicPartition, error: KafkaError | None
    ) -> None:
        if error is not None:
            errors[topic_partition] = error.code
        self.waiting -= 1
        if not self.waiting and not self._finished.done():
            self._finished.set_result(None)
