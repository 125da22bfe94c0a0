"""`KafkaStream`, from which one thread of the application reads the records of its partitions."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from odradek.clients.consumer import Consumer, ConsumerRecord
from odradek.model import OdradekError, TopicPartition

_log = logging.getLogger("odradek.clients")


class ConsumerTimeoutError(OdradekError):
    """No record came within `consumer.timeout.ms`."""


class KafkaStream:
    """An endless iterator over records; partitions come and go with rebalances.

    A record counts as consumed when the next one is asked for, or at an explicit commit. Its partition's records that
    wait here are dropped when a rebalance begins.
    """

    def __init__(
        self, thread_id: str, new_consumer: Callable[[], Awaitable[Consumer]], *, timeout_ms: int | None
    ) -> None:
        self.thread_id = thread_id
        self._new_consumer = new_consumer
        self._timeout_ms = timeout_ms
        self._consumer: Consumer | None = None
        self._started = asyncio.Event()
        self._interrupted = asyncio.Event()
        """Set, and replaced, when the stream drops its client or ends."""
        self._waiting: deque[ConsumerRecord] = deque()
        self._consumed: dict[TopicPartition, int] = {}
        self._returned: tuple[TopicPartition, int] | None = None
        """The partition of the record that was returned last, and the offset after it."""
        self._failure: BaseException | None = None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the stream reads at present."""
        return frozenset() if self._consumer is None else self._consumer.assignment()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. Raises `ConsumerTimeoutError`, and `StopAsyncIteration` after `close`."""
        self.mark_consumed()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            await self._fill()
        record = self._waiting.popleft()
        self._returned = TopicPartition(record.topic, record.partition), record.offset + 1
        return record

    async def _fill(self) -> None:
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        polling = asyncio.ensure_future(self._poll())
        try:
            timeout_s = None if self._timeout_ms is None else self._timeout_ms / 1000
            done, _ = await asyncio.wait({interrupted, polling}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if polling in done:
                polling.result()
        finally:
            for each in (interrupted, polling):
                each.cancel()
            await asyncio.wait({interrupted, polling})
        if not done:
            raise ConsumerTimeoutError(
                f"{self.thread_id} got no record within {self._timeout_ms:,} ms (consumer.timeout.ms)"
            )

    async def _poll(self) -> None:
        while self._consumer is None:
            await self._started.wait()
        # Nothing runs between the return of `poll` and `extend`, so `stop_fetching` drops all earlier records.
        self._waiting.extend(await self._consumer.poll())

    def mark_consumed(self) -> None:
        """Count the record that was returned last as consumed."""
        if self._returned is not None:
            place, offset = self._returned
            self._consumed[place], self._returned = offset, None

    @property
    def consumed(self) -> Mapping[TopicPartition, int]:
        """Return the next offset of each partition whose records were consumed, or that began without an offset."""
        return self._consumed

    async def start_fetching(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: from where `auto.offset.reset` says at this moment.

        Such an offset counts as consumed at once, as in Kafka: later records are not skipped if the next owner starts
        before one is read. Raises `UnavailableError` without a broker.
        """
        if self._consumer is None:
            self._consumer = await self._new_consumer()
        consumer = self._consumer
        consumer.assign(offsets)
        missing = [place for place, offset in offsets.items() if offset is None]
        consumer.pause(*missing)  # no record of them is returned before the first offset is known
        for place, offset in offsets.items():
            if offset is not None:
                consumer.seek(place, offset)
        self._started.set()
        positions = await asyncio.gather(*(consumer.position(place) for place in missing), return_exceptions=True)
        for place, position in zip(missing, positions, strict=True):
            if isinstance(position, int):
                self._consumed[place] = position
            elif isinstance(position, OdradekError):
                _log.warning("%s looks up the first offset of %s later: %s", self.thread_id, place, position)
            else:
                raise position
        consumer.resume(*missing)

    def stop_fetching(self) -> None:
        """Read nothing, and forget what was read but not returned."""
        self._waiting.clear()
        self._consumed.clear()
        self._returned = None
        if self._consumer is not None:
            self._consumer.assign(())

    async def close(self, error: BaseException | None = None) -> None:
        """End the iteration, with `error` if there is one."""
        self._failure = StopAsyncIteration() if error is None else error
        self._waiting.clear()
        await self.drop_client()

    async def drop_client(self) -> None:
        """Close the client; the next `start_fetching` creates another."""
        self._started.clear()
        self._interrupted.set()
        self._interrupted = asyncio.Event()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()
