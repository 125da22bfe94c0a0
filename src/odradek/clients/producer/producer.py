"""`Producer`, the public class: send, flush and close."""

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from odradek.clients.arguments import PartitionT, addresses_of, instances_of, whole_number
from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata, offsets_by_partition
from odradek.clients.producer.compression_ratio import CompressionRatioEstimator
from odradek.clients.producer.interceptors import Interceptors, ProducerInterceptor, ProducerRecord
from odradek.clients.producer.metrics import ProducerMetrics
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.producer_batch import RecordMetadata
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.record_appender import RecordAppender
from odradek.clients.producer.record_checks import (
    Serializer,
    checked_parts,
    checked_serializer,
    serialized,
    too_large,
    valid_timestamp,
)
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.settings import producer_settings
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.clients.producer.transactions.start import start_sender
from odradek.clients.producer.transactions.transactions import Transaction, Transactions
from odradek.clients.setting_types import ProducerConfig
from odradek.model import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    TopicPartition,
    UnavailableError,
    validate_topic_name,
)
from odradek.partitioners import Partitioner, create_partitioner
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import MAX_RECORD_OVERHEAD, Headers, record_size_bound
from odradek.runtime import Runtime, system_runtime
from odradek.wire.client_connection import log_waiting

if TYPE_CHECKING:
    from odradek.clients.producer.arrow import ArrowRows, SentRows

_log = logging.getLogger("odradek.clients")
SendCallback = Callable[[RecordMetadata | None, BaseException | None], object]
"""Called with a delivered record's metadata and None, or with None and the error, as Kafka's `Callback`."""


class Producer:
    """A producer of records to a Kafka cluster.

        async with Producer("localhost:9092", linger_ms=20) as producer:
            delivered = await producer.send("flights", b"{}", key=b"N14228")
            print((await delivered).offset)

    Settings are Kafka's, with `_` for `.` (`odradek.clients.producer.settings`). `partitioner` is a name, an import
    path or an object (`odradek.partitioners`); names may also come as `partitioner_class`. Without serializers, keys
    and values are bytes. By default the producer is idempotent. Raises `ConfigurationError` for unknown settings and
    invalid values.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        partitioner: str | Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        runtime: Runtime | None = None,
        **settings: Unpack[ProducerConfig],
    ) -> None:
        self._settings = producer_settings({**settings, "bootstrap_servers": addresses_of(bootstrap_servers)})
        if partitioner is not None and "partitioner_class" in settings:
            raise ConfigurationError("partitioner and partitioner_class are the same: give one of them")
        self._runtime = runtime or system_runtime()
        self._placer = RecordPlacer(
            create_partitioner(
                self._settings.partitioner_class if partitioner is None else partitioner,
                entropy=self._runtime.entropy,
                monotonic=self._runtime.clock.monotonic,
                batch_size=max(self._settings.batch_size, 1),
                ignore_keys=self._settings.partitioner_ignore_keys,
                adaptive=self._settings.partitioner_adaptive_partitioning_enable,
                refresh_ms=self._settings.topic_metadata_refresh_interval_ms,
            )
        )
        self._key_serializer = checked_serializer("key_serializer", key_serializer)
        self._value_serializer = checked_serializer("value_serializer", value_serializer)
        self._interceptors = Interceptors(interceptors) if interceptors else None
        self._cluster = self._new_cluster()
        self._metrics = ProducerMetrics()
        self._estimator = CompressionRatioEstimator()
        self._accumulator = RecordAccumulator(
            batch_size=self._settings.batch_size,
            linger_ms=self._settings.linger_ms,
            buffer_memory=self._settings.buffer_memory,
            estimator=None if self._settings.codec == Codec.NONE else self._estimator,
            on_acknowledgement=self._interceptors.on_acknowledgement if self._interceptors else None,
        )
        ignore_keys = self._settings.partitioner_ignore_keys
        monotonic = self._runtime.clock.monotonic
        self._appender = RecordAppender(self._accumulator, self._placer, monotonic, ignore_keys=ignore_keys)
        self._sender: Sender | None = None
        self._transactions: Transactions | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._flushes = 0
        self._has_callbacks = False

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. After a failure it may be called again.

        Raises `UnavailableError` if no broker answers within `max_block_ms` or `default_api_timeout_ms`, and after
        `close`.
        """
        if self._is_closed:
            raise UnavailableError("the producer is closed: create another one")
        async with self._starting:
            if self._sender is None:
                try:
                    parts = self._accumulator, self._placer, self._metrics, self._estimator, self.flush
                    self._sender, self._transactions = await start_sender(self._cluster, self._settings, *parts)
                except BaseException:
                    await self._cluster.close()
                    self._cluster = self._new_cluster()
                    raise
        return self

    def __del__(self) -> None:
        # After an invalid setting, there is no sender yet.
        if getattr(self, "_sender", None) is not None and (undelivered := self._accumulator.undelivered()):
            advice = "use it in an `async with` block, or await its close()"
            message = f"A producer was not closed: {advice}. Undelivered records: {undelivered}"
            _log.warning(message)
            warnings.warn(message, ResourceWarning, stacklevel=1, source=self)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        callback: SendCallback | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Append a record to its partition's batch; return a future of its `RecordMetadata` or error.

        Waits up to `max_block_ms` for metadata of a new topic and for free memory (`buffer_memory`). The future need
        not be awaited: `flush` waits, too, and failures are logged. `timestamp_ms` is the current time by default.
        `callback(metadata, exception)`, of which one is None, is called on the event loop when the future is done.
        Raises `KafkaError` for an unknown topic or partition, a record over `max_request_size`, and a failed serializer
        or partitioner; `TypeError` for a key, value or header of a wrong type; `UnavailableError` after `max_block_ms`.
        """
        if callback is not None:
            _check_callback(callback)
        headers = _pairs(headers) if headers else ()
        record = None
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            record = self._interceptors.on_send(record)
            topic, value, key, partition, timestamp_ms, headers = record
        # All of this is in one coroutine, since another one for each record takes a fifth of a `send`.
        try:
            sender, accumulator = self._running_sender(), self._accumulator
            self._check_transaction()
            blocked_until: float | None = None
            if partition is not None:
                partition = whole_number("partition", partition)
            if not self._knows(topic, partition):
                blocked_until = self._block_deadline()
                await self._wait_on_metadata(topic, partition, blocked_until)
            key, value, size = self._serialized(topic, key, value, headers)
            timestamp = self._runtime.clock.now_ms() if timestamp_ms is None else valid_timestamp(timestamp_ms)
            if not accumulator.has_memory(size):
                blocked_until = blocked_until or self._block_deadline()
                await self._wait_for_memory(size, blocked_until)
                self._ensure_still_exists(topic, partition)
            if blocked_until is not None:
                self._check_after_wait(sender)
            future: asyncio.Future[RecordMetadata] = asyncio.Future(loop=sender.loop)
            metadata = self._cluster.metadata
            try:
                # No await between the choice of the partition and the append.
                batch = self._appender.append(topic, partition, timestamp, key, value, headers, future, metadata)
            except Exception:
                # This record does not use its memory: grant it to a waiting call.
                accumulator.grant_memory()
                raise
            if len(batch.futures) == 1 or batch.size >= batch.limit:
                sender.wake()
                if accumulator.is_full(accumulator.queues[batch.partition]):
                    # Without this turn of the event loop, a caller that never waits fills the buffer before the first
                    # batch is sent.
                    await asyncio.sleep(0)
        except Exception as error:
            self._send_failed(record, error)
            raise
        if callback is not None:
            self._has_callbacks = True
            future.add_done_callback(partial(_call_back, callback, topic))
        return future

    async def send_arrow(
        self,
        data: Any,
        topic: str,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        max_batch_bytes: int | None = None,
    ) -> "list[SentRows]":
        """Append the rows of an Arrow table or record batch as record batches; return a `SentRows` for each batch.

        Columns: `key` and `value` (binary or string; at least one of the two), and optionally `headers` (list of
        structs of `key` and `value`), `timestamp` (timestamp or int64 in ms) and `partition`. The argument `partition`
        replaces the column; `timestamp_ms`, now by default, is for rows without a timestamp. Rows without a partition
        go to the partitioner's choice: by key as in `send`, without a key a whole batch together. The rows of a
        partition keep their order. Batches have at most `max_batch_bytes` before compression (`max_request_size` by
        default). Interceptors and serializers are not applied.

        Waits up to `max_block_ms` for metadata, and for memory before each batch. Raises `TypeError` for other
        objects, and `KafkaError` for an invalid column or row (with its number); nothing is sent then. Raises
        `UnavailableError` if memory is not free in time; earlier batches are still sent.
        """
        from odradek.clients.producer.arrow import ArrowRows, checked_rows

        if max_batch_bytes is not None and max_batch_bytes < 1:
            raise ValueError(f"max_batch_bytes is at least 1, not {max_batch_bytes}")
        sender = self._running_sender()
        now_ms = self._runtime.clock.now_ms() if timestamp_ms is None else valid_timestamp(timestamp_ms)
        sources = checked_rows(data, partition, max_record_bytes=self._settings.max_request_size)
        deadline = self._block_deadline()
        await self._wait_on_metadata(topic, None, deadline)
        if not all(
            source.partition_numbers <= self._cluster.metadata.topics[topic].partitions.keys() for source in sources
        ):
            # The partition may be newer than the metadata.
            await self._cluster.refresh(timeout_ms=self._remaining_ms(deadline))
        rows = ArrowRows(
            sources,
            topic,
            self._placer,
            self._cluster.metadata,
            default_timestamp_ms=now_ms,
            max_batch_bytes=max_batch_bytes or self._settings.max_request_size,
        )
        sent: list[SentRows] = []
        while rows.next_bytes:
            sent.append(await self._append_rows(sender, rows, topic))
        return sent

    def transaction(self) -> Transaction:
        """Return a block that is one transaction: `async with producer.transaction():`.

        Its end commits; an error in it aborts. Needs a `transactional_id`. Raises `TransactionAbortedError` if it was
        not committed (repeat it), `ProducerFencedError` if another producer has the id (close this one).
        """
        return Transaction(self._running_transactions)

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        await self._running_transactions().begin()

    async def commit_transaction(self) -> None:
        """Flush, and commit the transaction. Raises `TransactionAbortedError` if it can only be aborted.

        `UnavailableError` after `max_block_ms` says nothing of the outcome: call it again.
        """
        await self._running_transactions().commit()

    async def abort_transaction(self) -> None:
        """Drop the records that are not sent, and abort the transaction."""
        await self._running_transactions().abort()

    async def send_offsets(
        self, offsets: Mapping[PartitionT, int | OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's `offsets` (the next to read) with the transaction; `group` is `consumer.group_metadata()`.

        Raises `TransactionAbortedError` if the group has rebalanced: other members may own the partitions.
        """
        (group,) = instances_of(ConsumerGroupMetadata, [group])
        if not group.group_id:
            raise ConfigurationError(
                "offsets belong to a group: give the group_metadata() of a consumer with a group_id"
            )
        await self._running_transactions().send_offsets(offsets_by_partition(offsets), group)

    async def prepare(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Flush, and return the name of the transaction, which stays open until `complete`, also after a crash.

        Store `str()` of it with the results in a database, then call `complete` (KIP-939). Needs
        `transaction_two_phase_commit_enable`, or `may_time_out`: the brokers then abort it after its timeout.
        """
        if not (may_time_out or self._settings.transaction_two_phase_commit_enable):
            raise ConfigurationError("prepare needs a producer with transaction_two_phase_commit_enable=True")
        return await self._running_transactions().prepare()

    async def complete(self, state: PreparedTransaction | str | None) -> bool:
        """Commit the prepared transaction if it is `state`, else abort it; return whether it was committed.

        After a crash, call it with the last stored `state` (None without one) before anything else. Without a prepared
        transaction, returns False: it was completed before.
        """
        wanted = PreparedTransaction.parse(state) if isinstance(state, str) else state
        return await self._running_transactions().complete(wanted)

    async def flush(self) -> None:
        """Wait until every record sent so far is delivered or has failed."""
        if self._sender is None:
            return
        sender = self._sender
        if sender.loop.is_closed():
            raise _loop_closed()
        self._flushes += 1
        sender.flushing = True
        sender.wake()
        try:
            # The loop appends the parts of batches that were split during the wait.
            batches = list(self._accumulator.incomplete)
            for batch in batches:
                if not batch.is_done:
                    batch.finished = batch.finished or sender.loop.create_future()
                    await asyncio.shield(batch.finished)
                batches += batch.parts
            if self._has_callbacks:
                await asyncio.sleep(0)  # those of a batch that is done may wait for this turn of the event loop
        finally:
            self._flushes -= 1
            sender.flushing = self._flushes > 0

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Flush for at most `timeout_ms` (None: without limit) and close all connections. Undelivered records fail.

        An open transaction is aborted, unless it is prepared.
        """
        if self._sender is None:
            return
        sender = self._sender
        if sender.loop.is_closed():
            raise _loop_closed()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if self._transactions is not None:
                    await self._transactions.close()
                await self.flush()
        except TimeoutError:
            pass
        finally:
            self._sender, self._is_closed = None, True
            sender.close(_closed())
            await self._cluster.close()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the topic's partitions. Raises `KafkaError` if the topic does not exist."""
        return (await self._cluster.topic(topic, timeout_ms=self._settings.max_block_ms)).numbers

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names in snake_case; averages are since the start, not of the last 30 s."""
        sender, accumulator = self._sender, self._accumulator
        now = self._runtime.clock.monotonic()
        return self._metrics.snapshot() | {
            "requests_in_flight": 0 if sender is None else sender.requests_in_flight,
            "metadata_age": 0.0 if sender is None else self._cluster.metadata_age_s(now),
            "waiting_threads": accumulator.waiting_calls,
            "buffer_total_bytes": self._settings.buffer_memory,
            "buffer_available_bytes": accumulator.available_bytes,
        }

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flush and close; if the block raised an error, close without the flush."""
        await self.close(timeout_ms=None if kind is None else 0)

    def _new_cluster(self) -> Cluster:
        may_create = self._settings.allow_auto_create_topics
        return Cluster(self._settings, self._runtime, allow_auto_topic_creation=may_create)

    # ---- append -------------------------------------------------------------------------------------------------

    def _knows(self, topic: str, partition: int | None) -> bool:
        """Return whether the topic has partitions, and the given one, by the present metadata."""
        known = self._cluster.metadata.topics.get(topic)
        return known is not None and (bool(known.partitions) if partition is None else partition in known.partitions)

    def _serialized(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[bytes | None, bytes | None, int]:
        """Return key and value as bytes, and the largest size in bytes that the record may have."""
        if self._key_serializer is not None and key is not None:
            key = serialized("key_serializer", self._key_serializer, topic, key)
        if self._value_serializer is not None and value is not None:
            value = serialized("value_serializer", self._value_serializer, topic, value)
        if headers or type(value) is not bytes or not (key is None or type(key) is bytes):
            key, value = checked_parts(key, value, headers)
            size = record_size_bound(key, value, headers)
        else:
            size = MAX_RECORD_OVERHEAD + len(value) + (0 if key is None else len(key))
        if size > self._settings.max_request_size:
            raise too_large(topic, size, self._settings.max_request_size)
        return key, value, size

    def _send_failed(self, record: ProducerRecord | None, error: Exception) -> None:
        """Notify the interceptors, if there are any, of a record that was refused."""
        if self._interceptors is not None and record is not None:
            self._interceptors.on_send_error(record, error)

    async def _append_rows(self, sender: Sender, rows: "ArrowRows", topic: str) -> "SentRows":
        from odradek.clients.producer.arrow import RowOffsets, SentRows

        accumulator = self._accumulator
        if not accumulator.has_memory(rows.next_bytes):
            await self._wait_for_memory(rows.next_bytes, self._block_deadline())
        self._check_after_wait(sender)
        partition, encoded, numbers = rows.encode(self._settings.codec, self._settings.compression_level)
        placed = TopicPartition(topic, partition)
        offsets = RowOffsets(encoded.record_count)
        accumulator.append_rows(
            placed,
            encoded.batch,
            encoded.uncompressed_bytes,
            encoded.record_count,
            offsets,
            self._runtime.clock.monotonic(),
        )
        sender.wake()
        # Without this turn of the event loop, the first batch is sent after all are encoded.
        await asyncio.sleep(0)
        return SentRows(placed, numbers, offsets.future)

    # ---- waits --------------------------------------------------------------------------------------------------

    def _running_sender(self) -> Sender:
        """Return the sender. Raises its fatal error, and `UnavailableError` before `start` and after `close`."""
        if self._is_closed:
            raise UnavailableError("the producer was closed: create another one")
        if self._sender is None:
            raise UnavailableError(
                "the producer is not started: use it in an `async with` block (`with`, if it is a blocking one)"
            )
        if self._sender.fatal is not None:
            raise self._sender.fatal
        if self._sender.loop.is_closed():
            raise _loop_closed()
        return self._sender

    def _check_after_wait(self, sender: Sender) -> None:
        """Raise an error if the producer was closed or the transaction ended while a call waited."""
        if self._sender is not sender:
            raise _closed()
        self._check_transaction()

    def _check_transaction(self) -> None:
        """Raise an error if records of this producer need a transaction, and none is open."""
        if self._transactions is not None:
            self._transactions.machine.check_open()

    def _running_transactions(self) -> Transactions:
        if self._settings.transactional_id is None:
            raise ConfigurationError("transactions need a Producer with a transactional_id")
        self._running_sender()
        assert self._transactions is not None
        return self._transactions

    def _block_deadline(self) -> float:
        return self._runtime.clock.monotonic() + self._settings.max_block_ms / 1000

    def _remaining_ms(self, deadline: float) -> int:
        return max(0, round((deadline - self._runtime.clock.monotonic()) * 1000))

    async def _wait_on_metadata(self, topic: str, partition: int | None, deadline: float) -> None:
        """Wait for the topic, and refresh once for a missing partition. Raises `KafkaError` if it is still missing."""
        validate_topic_name(topic)
        found = await self._cluster.topic(topic, timeout_ms=self._settings.max_block_ms)
        if partition is None or partition in found.partitions:
            return
        await self._cluster.refresh(timeout_ms=self._remaining_ms(deadline))
        count = len(self._cluster.metadata.partitions_for_topic(topic))
        if partition not in self._cluster.metadata.partitions_for_topic(topic):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"topic {topic!r} has no partition {partition}, only {count} of them",
            )

    def _ensure_still_exists(self, topic: str, partition: int | None) -> None:
        """Raise `KafkaError`, and free the record's memory, if the topic was deleted while the record waited."""
        if not self._knows(topic, partition):
            self._accumulator.grant_memory()
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"topic {topic!r} was deleted while the record waited for memory"
            )

    async def _wait_for_memory(self, size: int, deadline: float) -> None:
        """Wait for `size` free bytes; append before the next await. Raises `UnavailableError` at the `deadline`."""
        accumulator, clock = self._accumulator, self._runtime.clock
        started = clock.monotonic()
        waiter: asyncio.Future[None] = self._running_sender().loop.create_future()
        accumulator.wait_for_memory(size, waiter)
        self._running_sender().wake()
        try:
            full = f"room for a record: {accumulator.used_bytes:,} bytes wait to be delivered (buffer_memory)"
            with log_waiting(full, wanted=accumulator.waiting_calls == 1):
                async with asyncio.timeout(max(deadline - started, 0)):
                    await waiter
        except BaseException as error:
            accumulator.stop_waiting(size, waiter)
            if not isinstance(error, TimeoutError):
                raise
            self._metrics.buffer_exhausted_total += 1
            raise UnavailableError(
                f"no room for a record within {self._settings.max_block_ms:,} ms: "
                f"{accumulator.used_bytes:,} bytes wait to be delivered (buffer_memory)"
            ) from None
        finally:
            self._metrics.bufferpool_wait_time_ns_total += round((clock.monotonic() - started) * 1e9)
        accumulator.use_reservation(size)


def _check_callback(callback: SendCallback) -> None:
    if not callable(callback) or asyncio.iscoroutinefunction(callback):
        raise TypeError(f"callback is a function of metadata and exception, no coroutine function, not {callback!r}")


def _pairs(headers: Headers | Mapping[str, bytes | None]) -> Headers:
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers


def _loop_closed() -> UnavailableError:
    return UnavailableError("the producer's event loop is closed: create a producer in the running one")


def _closed() -> UnavailableError:
    return UnavailableError("the producer was closed before the record was delivered")


def _call_back(callback: SendCallback, topic: str, future: asyncio.Future[RecordMetadata]) -> None:
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    try:
        callback(None if error else future.result(), error)
    except Exception:
        _log.exception("Error executing user-provided callback on message for topic %s", topic)


__all__ = ["Producer", "RecordMetadata", "Serializer"]
