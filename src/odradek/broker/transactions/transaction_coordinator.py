"""Kafka's `TransactionCoordinator`: requests for transactional ids, their configuration, and their log lines.

A transactional id belongs to the partition of `__transaction_state` that it hashes to; the partition's leader
coordinates its transactions. `broker.transactions.machine` has the state machine, `broker.coordinators` the runtime.
"""

import logging
from collections.abc import Awaitable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from odradek.broker.cluster.producer_ids import ProducerIds
from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime, CreateTopic, TopicKind
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.transactions.machine.messages import (
    AddPartitionsRequest,
    EndTransactionRequest,
    InitProducerIdRequest,
    MarkersWrittenRequest,
    ProducerIdNeeded,
    ProducerInitialised,
    Request,
    SendMarkers,
    TransactionTimedOut,
    VerifyPartitionsRequest,
)
from odradek.broker.transactions.machine.transaction import (
    EPOCH_PER_TRANSACTION,
    TransactionMetadata,
    TransactionRecord,
    TransactionRecordCodec,
)
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine, TransactionSettings
from odradek.broker.transactions.transaction_markers import MarkerWriter, TransactionMarkers, WhenAppended
from odradek.config.broker import BrokerConfig
from odradek.model import ErrorCode, KafkaError, OdradekError
from odradek.model.names import TRANSACTIONS_TOPIC
from odradek.runtime import Clock

_COMMIT_TIMEOUT_MS: Final = 30_000
"""How long a request waits for its record to be committed; Kafka's `request.timeout.ms`."""
_MOST_ID_CHARACTERS: Final = 200
"""Limit of a transactional id's characters in a log line."""
_log = logging.getLogger("odradek.transactions")


def _topic_config(config: BrokerConfig) -> dict[str, str]:
    return {
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
    }


_TOPIC: Final = TopicKind(name=TRANSACTIONS_TOPIC, prefix="transaction.state.log", config=_topic_config)


class TransactionCoordinator:
    """The coordinators of one broker.

    `marker_appended` is called for each marker that is appended here.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        partitions: ReplicaManager,
        connections: BrokerConnections,
        producer_ids: ProducerIds,
        *,
        create_topic: CreateTopic,
        marker_appended: WhenAppended,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._producer_ids = producer_ids
        self.marker_writer = MarkerWriter(partitions, clock, marker_appended)
        self.markers = TransactionMarkers(
            metadata,
            connections,
            self.marker_writer,
            coordinator=self._coordinator,
            completed=self._complete,
        )
        kind = CoordinatorKind[Request, TransactionRecord, TransactionMachine](
            topic=_TOPIC,
            new_machine=lambda _: TransactionMachine(self._settings),
            codec=TransactionRecordCodec(),
            commit_timeout_ms=_COMMIT_TIMEOUT_MS,
            on_event=self._on_event,
        )
        self.runtime = CoordinatorRuntime(kind, metadata, clock, partitions, create_topic=create_topic)

    def _settings(self) -> TransactionSettings:
        config = self._metadata.config
        return TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            removal_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            has_two_phase_commit=config.transaction_two_phase_commit_enable,
            transaction_version=self._metadata.image.features.transaction_version,
        )

    def stop(self) -> None:
        """Unload all ids; waiting requests get NOT_COORDINATOR, and the next coordinators send the markers."""
        self.markers.stop()
        self.runtime.stop()

    def kill(self) -> None:
        """Stop without responses, as if the process were killed."""
        self.markers.stop()
        self.runtime.kill()

    def _on_event(self, event: object) -> None:
        if isinstance(event, SendMarkers):
            self.markers.send(event)
        elif isinstance(event, TransactionTimedOut):
            _log.info(
                "Aborted the transaction of %r, which was open for longer than %d ms",
                event.transactional_id[:_MOST_ID_CHARACTERS], event.timeout_ms,
            )  # fmt: skip
        elif isinstance(event, ProducerInitialised):
            _log.info(
                "Initialized transactional id %r with producer id %d and epoch %d",
                event.transactional_id[:_MOST_ID_CHARACTERS], event.producer.producer_id, event.producer.epoch,
            )  # fmt: skip

    def _coordinator(self, transactional_id: str) -> tuple[object, int] | None:
        context = self.runtime.context(transactional_id)
        led = None if context is None else self._partitions.get(context.partition.topic_partition)
        return None if led is None else (context, led.leader_epoch)

    def _complete(self, end: SendMarkers) -> Awaitable[object]:
        return self.runtime.submit(end.transactional_id, MarkersWrittenRequest(producer=end.producer))

    # -- requests ------------------------------------------------------------------------------------------------------

    async def submit(self, transactional_id: str, request: Request) -> Any:
        """Handle a request of `odradek.broker.transactions.machine.messages`, and return its reply.

        Raises `KafkaError`: INVALID_REQUEST for an empty id, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE if no producer id can be allocated, or an error of the request.
        """
        reply = await self._submit(transactional_id, request)
        if isinstance(reply, ProducerIdNeeded):
            assert isinstance(request, InitProducerIdRequest | EndTransactionRequest)
            request = replace(request, new_producer_id=await self._new_producer_id())
            reply = await self.runtime.submit(transactional_id, request)
        return reply

    async def _submit(self, transactional_id: str, request: Request) -> Any:
        """Pass a request to the state machine; the next transaction waits a little for the markers of the last one.

        Clients that get CONCURRENT_TRANSACTIONS pause for 20 to 100 ms, and markers are written in a few. Requests of
        brokers wait for less, as each has the transactions of many clients; verifications do not wait at all.
        """
        try:
            return await self.runtime.submit(transactional_id, request)
        except KafkaError as error:
            if error.code is not ErrorCode.concurrent_transactions or isinstance(
                request, InitProducerIdRequest | VerifyPartitionsRequest
            ):
                raise
        config = self._metadata.config
        is_of_broker = (
            isinstance(request, AddPartitionsRequest) and request.transaction_version >= EPOCH_PER_TRANSACTION
        )
        within_ms = (
            config.add_partitions_to_txn_retry_backoff_ms
            if is_of_broker
            else config.add_partitions_to_txn_retry_backoff_max_ms
        )
        await self.markers.wait_until_completed(transactional_id, within_ms / 1000)
        return await self.runtime.submit(transactional_id, request)

    async def _new_producer_id(self) -> int:
        try:
            return await self._producer_ids.take()
        except OdradekError as error:
            _log.warning("Failed to allocate a producer id: %s", error)
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error

    def transactions(self) -> Iterator[TransactionMetadata]:
        """Yield the metadata of all ids that this broker coordinates; may raise `KafkaError` as `runtime.machines`."""
        for machine in self.runtime.machines():
            yield from machine.transactions.values()


def response_code(error: KafkaError, *, knows_fencing: bool) -> ErrorCode:
    """Return the error's code; INVALID_PRODUCER_EPOCH for PRODUCER_FENCED unless the client knows that (KIP-588)."""
    if error.code is ErrorCode.producer_fenced and not knows_fencing:
        return ErrorCode.invalid_producer_epoch
    return error.code
