"""Batches of records per partition, until the sender has delivered them; no clock and no I/O.

```
append → open batch ─ full, linger over, or flush ─→ drained (in flight) ─→ done
                                                          └─ retriable ─→ retrying, by sequence ─→ drained again
```
A partition with batches to retry sends nothing else, and one batch at a time, which keeps the order.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from odradek.clients.backoff import Backoff
from odradek.model import OdradekError, TopicPartition
from odradek.model.values import dataclass, field
from odradek.protocol.compression import Codec
from odradek.protocol.record_batch import read_header, write_header
from odradek.protocol.records import BatchBuilder, Headers

TIMER_SLACK_S: Final = 0.001
"""Resolution of the event loop's timers (uvloop): batches due within it are sent."""


class RecordMetadata(NamedTuple):
    """The partition and offset of a record. `offset` is -1 if unknown (`acks=0`); `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Records of one partition with the futures of their `send` calls.

    `number` counts a producer's batches; `created_at` and `retry_at` are monotonic seconds.
    """

    partition: TopicPartition
    number: int
    builder: BatchBuilder
    created_at: float
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    size: int = 0
    attempts: int = 0
    backoff: Backoff | None = None
    retry_at: float = 0.0
    last_error: OdradekError | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    records: bytearray | None = None
    is_done: bool = False
    finished: asyncio.Future[None] | None = None

    @property
    def count(self) -> int:
        """Return the number of records."""
        return len(self.futures)

    def encode(self, codec: Codec) -> bytearray:
        """Return the encoded batch with its current sequence."""
        if self.records is None:
            self.records = self.builder.build(
                codec,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self.records

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Change producer id, epoch and sequence, also of an encoded batch."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        if self.records is not None:
            header = read_header(self.records)._replace(
                producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
            )
            write_header(self.records, header)

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Complete all futures with offsets. `log_append_time` is -1 if records keep their own timestamps."""
        topic, partition = self.partition
        for index, future in enumerate(self.futures):
            if not future.done():
                offset = -1 if base_offset < 0 else base_offset + index
                timestamp = self.timestamps[index] if log_append_time < 0 else log_append_time
                future.set_result(RecordMetadata(topic, partition, offset, timestamp))
        self._finish()

    def complete_exceptionally(self, error: OdradekError) -> None:
        """Fail all futures."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                # Marked as retrieved, for callers that only flush: the sender logs one line per batch.
                future.exception()
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(None)


class PartitionQueue:
    """The batches of one partition; `waiting` ends with the batch that is still open.

    `connection` is the connection of the batches in flight. Later batches are not sent on another one: a broker
    recognises only the last few batches of a producer as duplicates, should those in flight have to be sent again.
    """

    __slots__ = ("connection", "in_flight", "partition", "retrying", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.retrying: list[ProducerBatch] = []
        self.in_flight: list[ProducerBatch] = []
        self.connection: object = None

    def can_send_on(self, connection: object) -> bool:
        """Return whether a batch may be sent on this connection now."""
        return not self.in_flight or self.connection is connection

    @property
    def is_idle(self) -> bool:
        """Return whether no batch is in flight or to be retried."""
        return not self.in_flight and not self.retrying

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch for a retry, ordered by sequence."""
        self.retrying.append(batch)
        self.retrying.sort(key=lambda each: each.number)


class RecordAccumulator:
    """The queues of all partitions and the memory that they use."""

    def __init__(self, *, batch_size: int, linger_ms: int, buffer_memory: int) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.incomplete: dict[ProducerBatch, None] = {}
        self.used_bytes = 0
        self._batches = 0
        self._batch_size = batch_size
        self._linger_s = linger_ms / 1000
        self._buffer_memory = buffer_memory
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    # ---- append -------------------------------------------------------------------------------------------------

    def has_memory(self, size: int) -> bool:
        """Return whether `size` more bytes fit; a record larger than the buffer fits when the buffer is empty."""
        return not self._waiters and self._fits(size)

    def wait_for_memory(self, size: int, waiter: asyncio.Future[None]) -> None:
        """Set `waiter`'s result once `size` bytes fit, in order of the calls."""
        self._waiters.append((size, waiter))

    @property
    def is_exhausted(self) -> bool:
        """Return whether a `send` waits for memory, so that batches are sent before they are full."""
        return bool(self._waiters)

    def append(
        self,
        partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata],
        now: float,
        *,
        allow_new_batch: bool = True,
    ) -> ProducerBatch | None:
        """Append a record to the partition's open batch, or to a new one if `allow_new_batch`.

        Return None if it did not fit. A returned batch with one record is a new one.
        """
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or not batch.builder.append(timestamp, key, value, headers):
            if not allow_new_batch:
                return None
            self._batches += 1
            batch = ProducerBatch(partition, self._batches, BatchBuilder(self._batch_size), now)
            batch.builder.append(timestamp, key, value, headers)
            queue.waiting.append(batch)
            self.incomplete[batch] = None
        batch.futures.append(future)
        batch.timestamps.append(timestamp)
        grown = batch.builder.size - batch.size
        batch.size += grown
        self.used_bytes += grown
        return batch

    # ---- drain --------------------------------------------------------------------------------------------------

    def is_full(self, queue: PartitionQueue) -> bool:
        """Return whether the first waiting batch is full."""
        return len(queue.waiting) > 1 or queue.waiting[0].size >= self._batch_size

    def due_at(self, queue: PartitionQueue, *, immediate: bool) -> float:
        """Return the monotonic second when the queue has a batch to drain; infinite while it waits for a response.

        `immediate`: do not wait for `linger.ms` (during a flush, or without memory).
        """
        if queue.retrying:
            return float("inf") if queue.in_flight else queue.retrying[0].retry_at
        if not queue.waiting:
            return float("inf")
        first = queue.waiting[0]
        return first.created_at if immediate or self.is_full(queue) else first.created_at + self._linger_s

    def drain(self, queue: PartitionQueue, connection: object = None) -> ProducerBatch:
        """Move the first batch that is due into flight, on a connection that `can_send_on` allows."""
        assert queue.can_send_on(connection)
        queue.connection = connection
        batch = queue.retrying.pop(0) if queue.retrying else queue.waiting.popleft()
        queue.in_flight.append(batch)
        return batch

    def deallocate(self, batch: ProducerBatch) -> None:
        """Free the memory of a completed batch and wake the `send` calls that now have enough."""
        assert batch.is_done
        if batch not in self.incomplete:
            return
        del self.incomplete[batch]
        self.used_bytes -= batch.size
        room = self.used_bytes
        while self._waiters:
            size, waiter = self._waiters[0]
            if waiter.done():
                self._waiters.popleft()
                continue
            if room and room + size > self._buffer_memory:
                break
            self._waiters.popleft()
            waiter.set_result(None)
            # They append in the next turn of the event loop; their memory counts from now on.
            room += size

    def expired_batches(self, now: float, delivery_timeout_s: float) -> list[ProducerBatch]:
        """Remove and return batches older than the delivery timeout; those in flight stay in `in_flight`."""
        late: list[ProducerBatch] = []
        for batch in self.incomplete:
            # Batches are in order of creation.
            if batch.created_at + delivery_timeout_s > now + TIMER_SLACK_S:
                break
            late.append(batch)
        for batch in late:
            queue = self.queues[batch.partition]
            if batch in queue.retrying:
                queue.retrying.remove(batch)
            elif batch not in queue.in_flight:
                queue.waiting.remove(batch)
        return late

    def _fits(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= self._buffer_memory
