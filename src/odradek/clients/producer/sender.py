"""Sends batches to the leaders of their partitions and handles the responses.

`wake`, timers and responses schedule `_run_once`, which sends what `ready_batches` decides.
Background tasks find missing leaders, connections and producer ids, then wake the sender.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from math import inf
from uuid import UUID

from odradek.clients.cluster import Cluster
from odradek.clients.producer.broker_readiness import BrokerReadiness, update_load
from odradek.clients.producer.compression_ratio import CompressionRatioEstimator
from odradek.clients.producer.metrics import ProducerMetrics
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.producer_batch import ProducerBatch
from odradek.clients.producer.ready_batches import ReadyBatches
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager
from odradek.clients.producer.transactions.coordinator_requests import LAST_PRODUCE_OF_VERSION_1, CoordinatorRequests
from odradek.clients.producer.transactions.machine import TransactionState
from odradek.clients.retry import INVALID_METADATA_ERRORS, retrying
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError, explained
from odradek.model.probes import probe
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.produce import (
    TOPIC_IDS_FROM,
    PartitionResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.wire.client_connection import WAITING_LOG_S, ClientConnection, RawResponse, waiting_log

_log = logging.getLogger("odradek.clients")
_UNKNOWN_PRODUCER_ERRORS = {ErrorCode.unknown_producer_id, ErrorCode.invalid_producer_epoch}
"""Errors of a broker that lost the producer's state. It appended nothing, so batches are retried with new sequences."""


class Sender:
    """The sender of one producer. While `flushing` is set, batches are sent without `linger.ms`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        placer: RecordPlacer,
        metrics: ProducerMetrics,
        estimator: CompressionRatioEstimator,
        transaction_manager: TransactionManager | None,
        coordinator: CoordinatorRequests | None = None,
    ) -> None:
        self.flushing = False
        self.fatal: OdradekError | None = None
        """The error that makes all further sends fail."""
        self._cluster = cluster
        self._clock = cluster.runtime.clock
        self._settings = settings
        self._accumulator = accumulator
        self._placer = placer
        self._metrics = metrics
        self._estimator = estimator
        self._readiness = BrokerReadiness(settings.partitioner_availability_timeout_ms / 1000)
        self._transaction_manager = transaction_manager
        self._coordinator = coordinator
        self._machine = None if coordinator is None else coordinator.machine
        self._ready_batches = ReadyBatches(accumulator, settings, transaction_manager, self._machine)
        self._adding_partitions: asyncio.Task[None] | None = None
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000
        self.loop = asyncio.get_running_loop()
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: set[int] = set()
        self._init_producer_id_in_flight = False
        self._requests_in_flight = 0
        self._closed = False
        cluster.on_metadata.append(self.wake)
        cluster.on_authentication_error.append(self._fail_unconnected)

    def wake(self) -> None:
        """Schedule a run in the next turn of the event loop."""
        if self._scheduled is None and not self._closed:
            self._scheduled = self.loop.call_soon(self._run_once)

    def close(self, error: OdradekError) -> None:
        """Stop, and fail all batches, whose number is logged."""
        self._closed = True
        if undelivered := self._accumulator.undelivered():
            _log.warning("The producer was closed with undelivered records: %s", undelivered)
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        self._abort_batches(error)

    @property
    def requests_in_flight(self) -> int:
        """Return the number of unanswered Produce requests."""
        return self._requests_in_flight

    # ---- send ---------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        self._scheduled = None
        if self._closed:
            return
        now = self._clock.monotonic()
        self._cluster.refresh_if_old()
        for batch in self._accumulator.expired_batches(now, self._delivery_timeout_s):
            self._fail_batch(batch, self._delivery_timeout_error(batch))
        self._set_timer(now, self._send_producer_data(now) if self._has_producer_id() else inf)
        if self._placer.is_load_aware:
            update_load(self._placer, self._accumulator, self._cluster.metadata, self._readiness)

    def _send_producer_data(self, now: float) -> float:
        """Send the batches that are due; return the monotonic second when the next one is due."""
        immediate = self.flushing or self._accumulator.is_exhausted
        ready = self._ready_batches.ready(now, self._cluster.metadata, immediate=immediate)
        next_at = ready.next_at
        if ready.has_leaderless:
            self._cluster.request_refresh()
        if self._machine is not None and self._machine.has_new_partitions and self._adding_partitions is None:
            self._adding_partitions = self._cluster.tasks.spawn(self._add_partitions(), "partitions of a transaction")
        for leader, queues in ready.by_leader.items():
            link = self._cluster.connections.existing(leader)
            is_ready = link is not None and self._ready_batches.has_capacity(link)
            self._readiness.update(leader, now, is_ready=is_ready)
            if link is None:
                self._connect(leader)
                continue
            link.on_writable(self.wake)
            for batches in self._ready_batches.requests(link, queues, now, immediate=immediate):
                self._send_produce_request(link, batches)
            next_at = min(next_at, self._ready_batches.next_at(link, queues, now, immediate=immediate))
        return next_at

    def _send_produce_request(self, connection: ClientConnection, batches: list[ProducerBatch]) -> None:
        acks = self._settings.required_acks
        topic_ids = {
            batch.partition.topic: self._cluster.metadata.topics[batch.partition.topic].topic_id for batch in batches
        }
        by_topic: dict[str, list[tuple[int, bytearray]]] = {}
        for batch in batches:
            records = self._encode(batch)
            by_topic.setdefault(batch.partition.topic, []).append((batch.partition.partition, records))
        topics = [ProduceTopic(topic, topic_ids[topic], partitions) for topic, partitions in by_topic.items()]
        at_most = None if all(topic_ids.values()) else TOPIC_IDS_FROM - 1
        if self._machine is not None and not self._machine.uses_version_2:
            at_most = LAST_PRODUCE_OF_VERSION_1
        try:
            version = connection.version(ApiKey.PRODUCE, at_most=at_most)
            timeout_ms, name = self._settings.request_timeout_ms, self._settings.transactional_id
            body = encode_produce_request(version, topics, acks=acks, timeout_ms=timeout_ms, transactional_id=name)
            now = self._clock.monotonic()
            self._metrics.request_sent(batches, now)
            if acks == 0:
                connection.post(ApiKey.PRODUCE, version, body)
                for batch in batches:
                    self._batch_succeeded(batch, -1, -1)
                return
        except OdradekError as error:
            for batch in batches:
                self._retry_or_fail_batch(batch, error)
            return
        names = {topic_id: topic for topic, topic_id in topic_ids.items()}
        answers = {batch.partition: batch for batch in batches}
        self._requests_in_flight += 1
        future = connection.exchange(ApiKey.PRODUCE, version, body)
        future.add_done_callback(partial(self._handle_produce_response, connection, answers, names, now))

    def _encode(self, batch: ProducerBatch) -> bytearray:
        """Return the encoded batch; at the first call, pass its compression ratio to the estimator."""
        if batch.records is not None:
            return batch.records
        records = batch.encode(self._settings.codec, self._settings.compression_level)
        self._estimator.update(batch.partition.topic, batch.compression_ratio)
        return records

    # ---- responses ----------------------------------------------------------------------------------------------

    def _handle_produce_response(
        self,
        connection: ClientConnection,
        batches: dict[TopicPartition, ProducerBatch],
        names: Mapping[UUID | None, str],
        sent_at: float,
        future: asyncio.Future[RawResponse],
    ) -> None:
        self._requests_in_flight -= 1
        self.wake()
        error: OdradekError = KafkaError(ErrorCode.unknown_server_error, "the response does not contain the partition")
        try:
            reply = future.result()
            response = decode_produce_response(reply.version, reply.frame, reply.offset)
            self._metrics.response_received(self._clock.monotonic() - sent_at, response.throttle_time_ms)
            for topic in response.topics:
                for answer in topic.partitions:
                    batch = batches.pop(
                        TopicPartition(topic.name or names.get(topic.topic_id, ""), answer.partition), None
                    )
                    if batch is not None:
                        self._complete_batch(batch, answer)
        except MalformedMessageError as malformed:
            error = connection.malformed(ApiKey.PRODUCE, malformed)
        except UnavailableError as unavailable:
            error = unavailable
            self._cluster.request_refresh()
        for batch in batches.values():
            self._retry_or_fail_batch(batch, error)

    def _complete_batch(self, batch: ProducerBatch, answer: PartitionResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.none:
            self._batch_succeeded(batch, answer.base_offset, answer.log_append_time)
        elif code == ErrorCode.duplicate_sequence_number:
            probe("producer: a batch was appended before, at an offset that the broker no longer knows")
            self._batch_succeeded(batch, -1, -1)
        elif code == ErrorCode.message_too_large and batch.count > 1 and not batch.is_done:
            self._split(batch)
        else:
            if code in INVALID_METADATA_ERRORS:
                self._cluster.request_refresh()
            self._retry_or_fail_batch(batch, KafkaError(code, _error_message(batch.partition, code, answer)))

    def _batch_succeeded(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        queue = self._accumulator.queues[batch.partition]
        queue.in_flight.remove(batch)
        queue.says_waiting = True
        if self._transaction_manager is not None:
            self._transaction_manager.update_last_acked_sequence(batch.partition, batch.base_sequence, batch.count)
        if not batch.is_done:
            batch.complete(base_offset, log_append_time)
        self._accumulator.deallocate(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Split a batch that is too large for the broker; queue its parts with the same sequences for a retry."""
        self._accumulator.queues[batch.partition].in_flight.remove(batch)
        probe("producer: a batch is split because the broker finds it too large")
        self._estimator.reset(batch.partition.topic, batch.compression_ratio)
        parts = self._accumulator.split(batch)
        self._metrics.batch_split_total += 1
        _log.warning(
            "A batch of %d records (%d bytes) for partition %s was too large for the broker; sending it as %d batches",
            batch.count,
            batch.estimated_bytes,
            batch.partition,
            len(parts),
        )

    def _retry_or_fail_batch(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Queue a batch for a retry if its error is retriable and `retries` is not exceeded; otherwise fail it."""
        queue = self._accumulator.queues[batch.partition]
        queue.in_flight.remove(batch)
        if batch.is_done:
            return
        batch.last_error = error
        is_aborting = self._machine is not None and self._machine.is_aborting
        if is_aborting or not self._can_retry(batch, error) or batch.attempts > self._settings.retries:
            self._fail_batch(batch, error)
            return
        self._metrics.record_retry_total += batch.count
        _log.debug("Retrying %d records of partition %s: %s", batch.count, batch.partition, error)
        batch.backoff = batch.backoff or self._cluster.backoff()
        now = self._clock.monotonic()
        batch.retry_at = now + batch.backoff.failed()
        if queue.says_waiting and now >= batch.created_at + WAITING_LOG_S:
            queue.says_waiting = False
            waiting_log.info("%s; trying again", error)
        queue.reenqueue(batch)

    def _can_retry(self, batch: ProducerBatch, error: OdradekError) -> bool:
        code = error.code if isinstance(error, KafkaError) else None
        if self._transaction_manager is None or code is None:
            return error.retriable
        if code == ErrorCode.out_of_order_sequence_number:
            # The broker did not append this batch: an earlier batch must be retried first or was given up, or, if this
            # is the next sequence, the broker lost acknowledged records.
            is_next = self._transaction_manager.is_next_sequence(batch.partition, batch.base_sequence)
            if not is_next and not self._transaction_manager.needs_new_sequences(batch.partition):
                return True
        elif code not in _UNKNOWN_PRODUCER_ERRORS:
            return error.retriable
        self._transaction_manager.request_epoch_bump(batch.partition)
        if self._machine is not None:  # only the coordinator gives a transactional producer a new epoch
            return False
        batch.reset_producer_state(-1, -1, -1)
        return True

    def _fail_batch(self, batch: ProducerBatch, error: OdradekError) -> None:
        if batch.is_done:  # with the transaction
            return
        _log.warning("Failed to deliver %d records to partition %s: %s", batch.count, batch.partition, error)
        self._drop_batch(batch, error)
        if self._machine is not None:
            self._machine.batch_failed(error, self._clock.monotonic())
            self._transaction_failed()

    def _drop_batch(self, batch: ProducerBatch, error: OdradekError) -> None:
        if batch.base_sequence >= 0:
            if self._transaction_manager is not None:
                self._transaction_manager.request_epoch_bump(batch.partition)
            if self._machine is not None:
                self._machine.batch_lost()
        self._metrics.record_error_total += batch.count
        batch.complete_exceptionally(error)
        self._accumulator.deallocate(batch)

    def _fail_unconnected(self) -> None:
        """Fail the batches of leaders without a connection, because the cluster refuses to authenticate the client."""
        error, metadata = self._cluster.authentication_error, self._cluster.metadata
        assert error is not None
        for queue in self._accumulator.queues.values():
            leader = metadata.leader(queue.partition)
            if leader is None or self._cluster.connections.existing(leader) is None:
                for batch in queue.take_undrained():
                    self._fail_batch(batch, error)

    def _abort_batches(self, error: OdradekError) -> None:
        self._accumulator.abort_waiters(error)
        for batch in list(self._accumulator.incomplete):
            self._metrics.record_error_total += batch.count
            batch.complete_exceptionally(error)
            self._accumulator.deallocate(batch)
        for queue in self._accumulator.queues.values():
            queue.waiting.clear()
            queue.retrying.clear()

    # ---- transactions -------------------------------------------------------------------------------------------

    def abort_undrained(self, error: OdradekError) -> None:
        """Fail all batches that are not in flight."""
        self._accumulator.abort_waiters(error)
        for queue in self._accumulator.queues.values():
            for batch in queue.take_undrained():
                self._drop_batch(batch, error)

    def coordinator_failed(self, error: OdradekError, *, is_end: bool = False) -> None:
        """Handle a coordinator's error that is not to be retried; `is_end` if it is about EndTxn."""
        assert self._machine is not None
        self._machine.coordinator_failed(error, self._clock.monotonic(), is_end=is_end)
        self._transaction_failed()

    async def partitions_added(self) -> None:
        """Wait for an AddPartitionsToTxn request in flight."""
        if self._adding_partitions is not None:
            await asyncio.wait([self._adding_partitions])

    def _transaction_failed(self) -> None:
        """Fail the batches that cannot be part of a committed transaction."""
        assert self._machine is not None
        if self._machine.error is None or self.fatal is not None:
            return
        if self._machine.state is TransactionState.FATAL_ERROR:
            self.fatal = self._machine.error
            self._abort_batches(self.fatal)
        elif self._machine.is_aborting:
            self.abort_undrained(self._machine.error)

    async def _add_partitions(self) -> None:
        try:
            await self._coordinator.add_partitions()  # type: ignore[union-attr]
        except OdradekError as error:
            self.coordinator_failed(error)
        finally:
            self._adding_partitions = None
            self.wake()

    def _delivery_timeout_error(self, batch: ProducerBatch) -> KafkaError:
        limit_ms = self._settings.delivery_timeout_ms
        why = f": {batch.last_error}" if batch.last_error is not None else ""
        return KafkaError(
            ErrorCode.request_timed_out, f"partition {batch.partition}: not delivered within {limit_ms:,} ms{why}"
        )

    # ---- producer id, connections, timer ------------------------------------------------------------------------

    def _has_producer_id(self) -> bool:
        """Return whether a producer id is known or not needed; request one if necessary."""
        if self._transaction_manager is None or self._transaction_manager.producer_id_and_epoch is not None:
            return True
        if not self._init_producer_id_in_flight and self._accumulator.incomplete:
            self._init_producer_id_in_flight = True
            self._cluster.tasks.spawn(self._init_producer_id(self._transaction_manager), "producer id")
        return False

    async def _init_producer_id(self, transaction_manager: TransactionManager) -> None:
        async def attempt() -> ProducerIdAndEpoch:
            connection = await self._cluster.connections.least_loaded()
            message = {"transactional_id": None, "transaction_timeout": self._settings.request_timeout_ms}
            response = await connection.request(ApiKey.INIT_PRODUCER_ID, message)
            if response.error_code != ErrorCode.none:
                raise KafkaError(response.error_code)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        try:
            identity = await retrying(self._cluster, attempt, timeout_ms=self._settings.delivery_timeout_ms)
            transaction_manager.set_producer_id_and_epoch(identity)
        except OdradekError as error:
            if not error.retriable:
                self.fatal = error
                self._abort_batches(error)
        finally:
            self._init_producer_id_in_flight = False
            self.wake()

    def _connect(self, node_id: int) -> None:
        if node_id not in self._connecting:
            self._connecting.add(node_id)
            self._cluster.tasks.spawn(self._open(node_id), f"producer's connection to broker {node_id}")

    async def _open(self, node_id: int) -> None:
        try:
            await self._cluster.connections.to_broker(node_id)
        except UnavailableError as error:
            _log.debug("Failed to connect to broker %d: %s", node_id, error)
            for queue in self._accumulator.queues.values():
                if queue.waiting and self._cluster.metadata.leader(queue.partition) == node_id:
                    queue.waiting[0].last_error = error
            self._cluster.request_refresh()
        finally:
            self._connecting.discard(node_id)
            self.wake()

    def _set_timer(self, now: float, due_at: float) -> None:
        """Set the timer to `due_at`, or to the first batch's delivery timeout if that is earlier."""
        first = next(iter(self._accumulator.incomplete), None)
        if first is not None:
            due_at = min(due_at, first.created_at + self._delivery_timeout_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_at < inf:
            self._timer = self.loop.call_later(max(due_at - now, 0), self.wake)


def _error_message(partition: TopicPartition, code: ErrorCode, answer: PartitionResponse) -> str:
    reason = answer.error_message or next((each.message for each in answer.record_errors if each.message), None)
    return f"partition {partition}: {explained(code, reason)}"
