"""Batches of records per partition, until the sender has delivered them; no clock and no I/O.

```
append → open batch ─ full, linger over, or flush ─→ drained (in flight) ─→ done
                                                          ├─ retriable ─→ retrying, by sequence ─→ drained again
                                                          └─ too large ─→ split; its parts are retrying
```
While a partition has batches to retry, it sends only these, one at a time, which keeps the order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.clients.producer.compression_ratio import CompressionRatioEstimator
from odradek.clients.producer.producer_batch import EncodedRows, ProducerBatch, RecordMetadata
from odradek.model import OdradekError, TopicPartition
from odradek.protocol.batches.record_batch import HEADER_SIZE
from odradek.protocol.batches.records import Headers

TIMER_SLACK_S: Final = 0.001
"""The resolution of the event loop's timers (uvloop): batches that are due within this time are sent now."""
_MAX_NAMED_TOPICS: Final = 10
"""Limit of topics in a log line."""


class PartitionQueue:
    """The batches of one partition; the last of `waiting` is open, unless it is full or encoded.

    While batches are in flight on `connection`, other batches are sent only there: batches in flight may be retried,
    and a broker detects duplicates only of a producer's last few batches.
    """

    __slots__ = ("connection", "in_flight", "partition", "retrying", "says_waiting", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.retrying: list[ProducerBatch] = []
        self.in_flight: list[ProducerBatch] = []
        self.connection: object = None
        self.says_waiting = True
        """Whether the next error that lasts gets a line in the log: the first one since a batch was delivered."""

    def can_send_on(self, connection: object) -> bool:
        """Return whether a batch may be sent on `connection`: no batch is in flight on another one."""
        return not self.in_flight or self.connection is connection

    @property
    def is_idle(self) -> bool:
        """Return whether no batch is in flight or waits for a retry."""
        return not self.in_flight and not self.retrying

    def take_undrained(self) -> list[ProducerBatch]:
        """Remove and return the batches that are not in flight."""
        batches = [*self.retrying, *self.waiting]
        self.retrying.clear()
        self.waiting.clear()
        return batches

    @property
    def next(self) -> ProducerBatch:
        """The batch to send next: of those that are sent again, first those with a sequence, in its order."""
        if not self.retrying:
            return self.waiting[0]
        return next((each for each in self.retrying if each.base_sequence >= 0), self.retrying[0])

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch for a retry, ordered by `number`, which is the order of sequences."""
        self.retrying.append(batch)
        self.retrying.sort(key=lambda each: each.number)


class RecordAccumulator:
    """The queues of all partitions and the memory that they use.

    `batch_size` limits a batch's estimated compressed bytes, `buffer_memory` the uncompressed bytes of all records.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        estimator: CompressionRatioEstimator | None = None,
        on_acknowledgement: Callable[[RecordMetadata, OdradekError | None], None] | None = None,
    ) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.incomplete: dict[ProducerBatch, None] = {}
        self.used_bytes = 0
        self._reserved_bytes = 0
        """The memory granted to `send` calls that have not appended yet."""
        self._batches = 0
        self._batch_size = batch_size
        self._linger_s = linger_ms / 1000
        self._buffer_memory = buffer_memory
        self._estimator = estimator
        self._on_acknowledgement = on_acknowledgement
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def undelivered(self) -> str:
        """Describe the records that are not delivered, such as `3, of topics a, b`; empty if there are none."""
        topics = sorted({batch.partition.topic for batch in self.incomplete})
        if not topics:
            return ""
        more = f" and {len(topics) - _MAX_NAMED_TOPICS} more" if len(topics) > _MAX_NAMED_TOPICS else ""
        count = sum(batch.count for batch in self.incomplete)
        return f"{count:,}, of topics {', '.join(topics[:_MAX_NAMED_TOPICS])}{more}"

    # ---- memory -------------------------------------------------------------------------------------------------

    def has_memory(self, size: int) -> bool:
        """Return whether `size` more bytes fit, and no call waits. An empty buffer accepts a record of any size."""
        used = self.used_bytes + self._reserved_bytes
        return not self._waiters and (used + size <= self._buffer_memory or not used)

    def wait_for_memory(self, size: int, waiter: asyncio.Future[None]) -> None:
        """Set `waiter`'s result when `size` bytes are reserved for it; waiters are served in order of the calls."""
        self._waiters.append((size, waiter))

    def stop_waiting(self, size: int, waiter: asyncio.Future[None]) -> None:
        """Remove the waiter, or free the reservation, of a call that failed or was cancelled."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._reserved_bytes -= size
        waiter.cancel()
        self.grant_memory()

    def use_reservation(self, size: int) -> None:
        """End a reservation; next, the caller must append or call `grant_memory`."""
        self._reserved_bytes -= size

    def grant_memory(self) -> None:
        """Reserve free memory for waiting calls, and wake them."""
        while self._waiters:
            size, waiter = self._waiters[0]
            if waiter.done():
                self._waiters.popleft()
                continue
            used = self.used_bytes + self._reserved_bytes
            if used and used + size > self._buffer_memory:
                break
            self._waiters.popleft()
            self._reserved_bytes += size
            waiter.set_result(None)

    def abort_waiters(self, error: OdradekError) -> None:
        """Raise `error` in all calls that wait for memory."""
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    @property
    def is_exhausted(self) -> bool:
        """Return whether a call waits for memory; then batches are sent before they are full."""
        return bool(self._waiters)

    @property
    def waiting_calls(self) -> int:
        """Return the number of calls that wait for memory."""
        return sum(not waiter.done() for _, waiter in self._waiters)

    @property
    def available_bytes(self) -> int:
        """Return the free bytes of `buffer_memory`."""
        return max(self._buffer_memory - self.used_bytes - self._reserved_bytes, 0)

    # ---- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata],
        now: float,
    ) -> ProducerBatch:
        """Append a record to the partition's open batch, or to a new one, and return the batch."""
        queue = self.queues.get(partition)
        batch = None if queue is None else self.try_append(queue, timestamp, key, value, headers, future)
        if batch is not None:
            return batch
        ratio = 1.0 if self._estimator is None else self._estimator.estimation(partition.topic)
        limit = HEADER_SIZE + int((self._batch_size - HEADER_SIZE) / ratio)
        number = self._next_number()
        batch = ProducerBatch(partition, number, now, limit, ratio, on_acknowledgement=self._on_acknowledgement)
        batch.append(timestamp, key, value, headers, future)
        self.used_bytes += batch.size
        self._enqueue(batch)
        return batch

    def try_append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata],
    ) -> ProducerBatch | None:
        """Append a record to the queue's open batch and return it; None if there is none with enough room."""
        batch = queue.waiting[-1] if queue.waiting else None
        grown = 0 if batch is None else batch.append(timestamp, key, value, headers, future)
        self.used_bytes += grown
        return batch if grown else None

    def append_rows(
        self, partition: TopicPartition, records: bytearray, size: int, count: int, rows: EncodedRows, now: float
    ) -> ProducerBatch:
        """Append an encoded batch, to be sent at once; `size` is its uncompressed size in bytes."""
        batch = ProducerBatch(partition, self._next_number(), now, row_count=count, rows=rows)
        batch.records, batch.size = records, size
        self.used_bytes += size
        self._enqueue(batch)
        return batch

    def _next_number(self) -> tuple[int, ...]:
        self._batches += 1
        return (self._batches,)

    def _enqueue(self, batch: ProducerBatch) -> None:
        queue = self.queues.get(batch.partition)
        if queue is None:
            queue = self.queues[batch.partition] = PartitionQueue(batch.partition)
        queue.waiting.append(batch)
        self.incomplete[batch] = None

    # ---- drain --------------------------------------------------------------------------------------------------

    def is_full(self, queue: PartitionQueue) -> bool:
        """Return whether the first waiting batch is full, or followed by another."""
        return len(queue.waiting) > 1 or queue.waiting[0].is_full

    def due_at(self, queue: PartitionQueue, *, immediate: bool) -> float:
        """Return the monotonic second when a batch may be drained; infinite if none is queued.

        Also infinite while a retry waits for batches in flight. `immediate` skips `linger.ms`, for a flush or when
        memory is short.
        """
        if queue.retrying:
            return float("inf") if queue.in_flight else queue.next.retry_at
        if not queue.waiting:
            return float("inf")
        first = queue.waiting[0]
        return first.created_at if immediate or self.is_full(queue) else first.created_at + self._linger_s

    def drain(self, queue: PartitionQueue, connection: object = None) -> ProducerBatch:
        """Move the first batch to `in_flight` and return it; `can_send_on` must allow `connection`."""
        assert queue.can_send_on(connection)
        queue.connection = connection
        batch = queue.next
        if queue.retrying:
            queue.retrying.remove(batch)
        else:
            queue.waiting.popleft()
        queue.in_flight.append(batch)
        return batch

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ...]:
        """Replace a batch that a broker refused as too large by smaller ones, which are queued for a retry."""
        parts = batch.split(self._batch_size)
        queue = self.queues[batch.partition]
        for part in parts:
            queue.reenqueue(part)
            self.used_bytes += part.size
        # `expired_batches` relies on the order of creation.
        batches = sorted((*self.incomplete, *parts), key=lambda each: each.created_at)
        self.incomplete = dict.fromkeys(batches)
        self.deallocate(batch)
        return parts

    def deallocate(self, batch: ProducerBatch) -> None:
        """Free the memory of a completed batch and grant it to waiting calls."""
        assert batch.is_done
        if batch not in self.incomplete:
            return
        del self.incomplete[batch]
        self.used_bytes -= batch.size
        self.grant_memory()

    def expired_batches(self, now: float, delivery_timeout_s: float) -> list[ProducerBatch]:
        """Return batches older than the delivery timeout, and remove those that are not in flight from their queues."""
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
