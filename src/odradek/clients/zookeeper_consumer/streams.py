"""`KafkaStream`, from which one thread of the application reads the records of its partitions."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from odradek.clients.consumer import Consumer, ConsumerRecord
from odradek.model import OdradekError, TopicPartition


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
        self._closed = asyncio.Event()
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
        closed, polling = asyncio.ensure_future(self._closed.wait()), asyncio.ensure_future(self._poll())
        try:
            timeout_s = None if self._timeout_ms is None else self._timeout_ms / 1000
            done, _ = await asyncio.wait({closed, polling}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if polling in done:
                polling.result()
        finally:
            for each in (closed, polling):
                each.cancel()
            await asyncio.wait({closed, polling})
        if not done:
            raise ConsumerTimeoutError(
                f"{self.thread_id} got no record within {self._timeout_ms:,} ms (consumer.timeout.ms)"
            )

    async def _poll(self) -> None:
        await self._started.wait()
        assert self._consumer is not None
        # Nothing runs between the return of `poll` and `extend`, so `stop_fetching` drops all earlier records.
        self._waiting.extend(await self._consumer.poll())

    def mark_consumed(self) -> None:
        """Count the record that was returned last as consumed."""
        if self._returned is not None:
            place, offset = self._returned
            self._consumed[place], self._returned = offset, None

    @property
    def consumed(self) -> Mapping[TopicPartition, int]:
        """Return the next offset of each partition of which records were consumed since fetching began."""
        return self._consumed

    async def start_fetching(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: from where `auto.offset.reset` says."""
        if self._consumer is None:
            self._consumer = await self._new_consumer()
        self._consumer.assign(offsets)
        for place, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(place, offset)
        self._started.set()

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
        self._closed.set()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()
