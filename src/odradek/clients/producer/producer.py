"""`Producer`, the public interface of this package."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from odradek.clients.cluster import Cluster
from odradek.clients.producer.record_accumulator import ProducerBatch, RecordAccumulator, RecordMetadata
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.settings import producer_settings
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError, validate_topic_name
from odradek.partitioners import BatchAware, LoadAware, Partitioner, create_partitioner
from odradek.protocol.records import Headers, record_size_bound
from odradek.runtime import Runtime, system_runtime


class Producer:
    """A producer of records to any Kafka cluster.

        async with Producer("localhost:9092", linger_ms=20) as producer:
            delivered = await producer.send("flights", b"{}", key=b"N14228")
            print((await delivered).offset)

    Settings are Kafka's, with `_` for `.` (`odradek.clients.producer.settings`). `partitioner` is a name, an import
    path or an object (`odradek.partitioners`). By default batches are idempotent and in order. Raises
    `ConfigurationError` for unknown settings and wrong values.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        partitioner: str | Partitioner = "adaptive",
        runtime: Runtime | None = None,
        **settings: object,
    ) -> None:
        addresses = bootstrap_servers if isinstance(bootstrap_servers, str) else tuple(bootstrap_servers)
        self._settings = producer_settings(settings | {"bootstrap_servers": addresses})
        self._runtime = runtime or system_runtime()
        self._partitioner = create_partitioner(
            partitioner,
            entropy=self._runtime.entropy,
            batch_size=self._settings.batch_size,
            ignore_keys=self._settings.partitioner_ignore_keys,
            adaptive=self._settings.partitioner_adaptive_partitioning_enable,
        )
        self._batch_aware = self._partitioner if isinstance(self._partitioner, BatchAware) else None
        self._load_aware = self._partitioner if isinstance(self._partitioner, LoadAware) else None
        self._cluster = Cluster(self._settings, self._runtime, allow_auto_topic_creation=True)
        self._accumulator = RecordAccumulator(
            batch_size=self._settings.batch_size,
            linger_ms=self._settings.linger_ms,
            buffer_memory=self._settings.buffer_memory,
        )
        self._sender: Sender | None = None
        self._flushes = 0

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. Raises `UnavailableError` if no broker answers in time."""
        if self._sender is None:
            try:
                await self._cluster.start(timeout_ms=self._settings.max_block_ms)
            except BaseException:
                await self._cluster.close()
                raise
            self._sender = Sender(self._cluster, self._settings, self._accumulator, self._partitioner)
        return self

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Append a record to its partition's batch; return a future of its offset or its error.

        Waits up to `max_block_ms` for metadata of a new topic or for memory in `buffer_memory` (back-pressure). The
        future need not be awaited: `flush` suffices, and failures are logged. `timestamp_ms` is now by default. Raises
        `KafkaError` for an unknown topic or partition and for a record over `max_request_size`, `UnavailableError`
        after `max_block_ms`.
        """
        sender = self._sender
        if sender is None:
            raise UnavailableError("the producer is not started: use `async with`, or await start()")
        if sender.fatal is not None:
            raise sender.fatal
        if isinstance(headers, Mapping):
            headers = tuple(headers.items())
        numbers = self._cluster.metadata.partitions_for_topic(topic)
        if not numbers or (partition is not None and partition not in numbers):
            await self._wait_on_metadata(topic, partition)
        size = self._ensure_valid_record_size(topic, key, value, headers)
        if not self._accumulator.has_memory(size):
            await self._wait_for_memory(size)
        timestamp = self._runtime.clock.now_ms() if timestamp_ms is None else timestamp_ms
        future: asyncio.Future[RecordMetadata] = sender.loop.create_future()
        batch = self._append(topic, partition, timestamp, key, value, headers, future)
        if batch.count == 1 or batch.size >= self._settings.batch_size:
            sender.wake()
            if self._accumulator.is_full(self._accumulator.queues[batch.partition]):
                # Without this turn of the event loop, a caller that never waits fills the buffer before the first batch
                # is sent.
                await asyncio.sleep(0)
        return future

    async def flush(self) -> None:
        """Wait until every record sent so far is delivered or has failed."""
        if self._sender is None:
            return
        self._flushes += 1
        self._sender.flushing = True
        self._sender.wake()
        try:
            for batch in list(self._accumulator.incomplete):
                if not batch.is_done:
                    batch.finished = batch.finished or self._sender.loop.create_future()
                    await asyncio.shield(batch.finished)
        finally:
            self._flushes -= 1
            self._sender.flushing = self._flushes > 0

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Flush for at most `timeout_ms` and close all connections. Undelivered records fail."""
        if self._sender is None:
            return
        sender = self._sender
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            self._sender = None
            sender.close(UnavailableError("the producer was closed before the record was delivered"))
            await self._cluster.close()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the topic's partitions. Raises `KafkaError` if it does not exist."""
        return (await self._cluster.topic(topic, timeout_ms=self._settings.max_block_ms)).numbers

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close without waiting for undelivered records if the block raised an error."""
        await self.close(timeout_ms=None if kind is None else 0)

    # ---- append -------------------------------------------------------------------------------------------------

    def _append(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata],
    ) -> ProducerBatch:
        """Choose the partition unless it is given, and append, without an await in between."""
        metadata, accumulator, now = self._cluster.metadata, self._accumulator, self._runtime.clock.monotonic()
        if partition is not None:
            placed = TopicPartition(topic, partition)
            return _appended(accumulator.append(placed, timestamp, key, value, headers, future, now))
        partitioner = self._partitioner
        placed = TopicPartition(topic, partitioner.partition(topic, key, value, metadata))
        if self._batch_aware is not None:
            batch = accumulator.append(placed, timestamp, key, value, headers, future, now, allow_new_batch=False)
            if batch is not None:
                return batch
            # The batch is full: sticky partitioners choose another partition now (KIP-480).
            self._batch_aware.on_new_batch(topic, metadata, placed.partition)
            placed = TopicPartition(topic, partitioner.partition(topic, key, value, metadata))
        before = accumulator.used_bytes
        batch = _appended(accumulator.append(placed, timestamp, key, value, headers, future, now))
        if self._load_aware is not None and (key is None or self._settings.partitioner_ignore_keys):
            self._load_aware.on_appended(
                topic,
                placed.partition,
                accumulator.used_bytes - before,
                metadata,
                batch_ready=accumulator.is_full(accumulator.queues[placed]),
            )
        return batch

    def _ensure_valid_record_size(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        try:
            size = record_size_bound(key, value, headers)
        except TypeError as error:
            raise TypeError(f"keys, values and headers are bytes or None: {error}") from error
        if isinstance(value, str) or isinstance(key, str):
            raise TypeError("keys and values are bytes or None, not str: encode them")
        if size > self._settings.max_request_size:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"a record of {size:,} bytes for topic {topic!r} is over max_request_size "
                f"({self._settings.max_request_size:,})",
            )
        return size

    async def _wait_on_metadata(self, topic: str, partition: int | None) -> None:
        """Look up the topic, and a partition that may have been added since."""
        validate_topic_name(topic)
        found = await self._cluster.topic(topic, timeout_ms=self._settings.max_block_ms)
        if partition is None or partition in found.partitions:
            return
        await self._cluster.refresh(timeout_ms=self._settings.max_block_ms)
        count = len(self._cluster.metadata.partitions_for_topic(topic))
        if partition not in self._cluster.metadata.partitions_for_topic(topic):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"topic {topic!r} has no partition {partition}, only {count} of them",
            )

    async def _wait_for_memory(self, size: int) -> None:
        assert self._sender is not None
        waiter: asyncio.Future[None] = self._sender.loop.create_future()
        self._accumulator.wait_for_memory(size, waiter)
        self._sender.wake()
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await waiter
        except TimeoutError:
            raise UnavailableError(
                f"no room for a record within {self._settings.max_block_ms:,} ms: "
                f"{self._accumulator.used_bytes:,} bytes wait to be delivered (buffer_memory)"
            ) from None
        if self._sender is None:
            raise UnavailableError("the producer was closed before the record was delivered")


def _appended(batch: ProducerBatch | None) -> ProducerBatch:
    assert batch is not None
    return batch


__all__ = ["Producer", "RecordMetadata"]
