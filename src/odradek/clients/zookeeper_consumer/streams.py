"""`KafkaStream`, the iterator from which the application reads the records of some partitions."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from odradek.clients.consumer import Consumer, ConsumerRecord
from odradek.model import AuthenticationError, OdradekError, TopicPartition

_log = logging.getLogger("odradek.clients")


class ConsumerTimeoutError(OdradekError):
    """A stream received no record within `consumer.timeout.ms`."""


class KafkaStream:
    """An endless iterator over records; rebalances change the partitions that it reads.

    A record counts as consumed when the next one is requested, or at an explicit commit. A rebalance drops the records
    that were fetched but not returned.
    """

    def __init__(
        self, thread_id: str, new_consumer: Callable[[], Awaitable[Consumer]], *, timeout_ms: int | None
    ) -> None:
        self.thread_id: str = thread_id
        self._new_consumer = new_consumer
        self._timeout_ms = timeout_ms
        self._consumer: Consumer | None = None
        self._started = asyncio.Event()
        self._interrupted = asyncio.Event()
        """Wakes a waiting `__anext__` when the stream closes its client; then replaced by a new event."""
        self._waiting: deque[ConsumerRecord] = deque()
        self._consumed: dict[TopicPartition, int] = {}
        self._last: ConsumerRecord | None = None
        """The last returned record; None once it counts as consumed."""
        self._failure: BaseException | None = None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the stream reads."""
        return frozenset() if self._consumer is None else self._consumer.assignment()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the stream's client, if it has one."""
        return {} if self._consumer is None else self._consumer.metrics()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. Raises `ConsumerTimeoutError`; after `close`, its `error` or `StopAsyncIteration`."""
        self.mark_consumed()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            await self._fill()
        self._last = self._waiting.popleft()
        return self._last

    async def _take_run(self) -> list[ConsumerRecord]:
        """Return one record, for blocking iteration: a rebalance could not take more back."""
        return [await anext(self)]

    def _returned(self, count: int) -> None:
        """If `count` is 0, take back the record of the last `_take_run`, which the application has not got."""
        if not count and self._last is not None:
            self._waiting.appendleft(self._last)
            self._last = None

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
        """Count the last returned record as consumed."""
        if self._last is not None:
            record, self._last = self._last, None
            self._consumed[TopicPartition(record.topic, record.partition)] = record.offset + 1

    @property
    def consumed(self) -> Mapping[TopicPartition, int]:
        """Return the offset to commit of each partition with a consumed record, or that began without an offset."""
        return self._consumed

    async def start_fetching(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions from these offsets; None means the offset that `auto.offset.reset` gives now.

        An offset from `auto.offset.reset` counts as consumed at once, as in Kafka, so that the next owner starts there,
        too. Raises `UnavailableError` if no broker responds.
        """
        if self._consumer is None:
            self._consumer = await self._new_consumer()
        consumer = self._consumer
        consumer.assign(offsets)
        missing = [place for place, offset in offsets.items() if offset is None]
        consumer.pause(*missing)  # return no record of them before the first offset is known
        for place, offset in offsets.items():
            if offset is not None:
                consumer.seek(place, offset)
        self._started.set()
        positions = await asyncio.gather(*(consumer.position(place) for place in missing), return_exceptions=True)
        for place, position in zip(missing, positions, strict=True):
            if isinstance(position, int):
                self._consumed[place] = position
            elif isinstance(position, OdradekError) and not isinstance(position, AuthenticationError):
                _log.warning("%s looks up the first offset of %s later: %s", self.thread_id, place, position)
            else:
                raise position
        consumer.resume(*missing)

    def stop_fetching(self) -> None:
        """Stop reading; drop the records that were not returned."""
        self._waiting.clear()
        if self._consumer is not None:
            self._consumer.assign(())

    def forget_consumed(self) -> None:
        """Drop the consumed offsets, which belong to other owners from now on."""
        self._consumed.clear()
        self._last = None

    async def close(self, error: BaseException | None = None) -> None:
        """Close the client and end the iteration, with `error` if it is given."""
        self._failure = StopAsyncIteration() if error is None else error
        self._waiting.clear()
        await self.drop_client()

    async def drop_client(self) -> None:
        """Close the stream's consumer; the next `start_fetching` creates another."""
        self._started.clear()
        self._interrupted.set()
        self._interrupted = asyncio.Event()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()
