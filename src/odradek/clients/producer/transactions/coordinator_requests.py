"""The requests of a transactional producer to the coordinators of its transactional id and of consumer groups.

Each request is retried for `max.block.ms` after retriable errors; the coordinator is looked up again if it has moved.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.clients.backoff import Backoff
from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import LAST_END_TXN_OF_VERSION_1, CoordinatorType, find_coordinator
from odradek.clients.group_offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    offset_topics,
)
from odradek.clients.offsets import by_topic
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager
from odradek.clients.producer.transactions.machine import TransactionMachine
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, UnavailableError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional
from odradek.wire.client_connection import ClientConnection

LAST_PRODUCE_OF_VERSION_1: Final = 11
"""Later versions of Produce add their partitions to the transaction (KIP-890)."""
_LAST_OFFSET_COMMIT_OF_VERSION_1: Final = 4
_LAST_OFFSET_COMMIT_WITH_NAMES: Final = 5
_LAST_ADD_PARTITIONS_OF_CLIENTS: Final = 3
_TWO_PHASE_COMMIT_FROM: Final = 6
_COORDINATOR_ERRORS: Final = {
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out,
}
_FIRST_BACKOFF_MS: Final = 20
"""As in Kafka: the markers of the last transaction are written within milliseconds (CONCURRENT_TRANSACTIONS)."""


class _Coordinator:
    """The coordinator of one transactional id or group."""

    def __init__(self, cluster: Cluster, key: str, kind: CoordinatorType, timeout_ms: int) -> None:
        self._cluster = cluster
        self._key = key
        self._kind = kind
        self._timeout_ms = timeout_ms
        self._node_id: int | None = None

    def connection(self) -> ClientConnection | None:
        """Return the open connection to the coordinator, if any."""
        return None if self._node_id is None else self._cluster.connections.existing(self._node_id)

    async def request(
        self,
        api: ApiKey,
        message: Mapping[str, Any],
        codes: Callable[[Any], Iterable[tuple[str, ErrorCode]]] = lambda response: [("", response.error_code)],
        *,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> Any:
        """Return the response. Raises the first error in `codes` that is not retriable, or the last one."""

        async def attempt() -> Any:
            try:
                if self._node_id is None:
                    self._node_id = await find_coordinator(self._cluster, self._key, self._kind)
                connection = await self._cluster.connections.to_broker(self._node_id)
                if connection.version(api) < at_least:
                    raise KafkaError(
                        ErrorCode.unsupported_version,
                        f"broker {connection.address} has no two-phase commit ({api.name} {at_least} or later)",
                    )
                response = await connection.request(api, message, at_most=at_most)
                _raise_first(f"transactional id {message['transactional_id']!r}", codes(response))
            except UnavailableError:
                self._node_id = None
                raise
            except KafkaError as error:
                if error.code in _COORDINATOR_ERRORS:
                    self._node_id = None
                raise
            return response

        settings = self._cluster.settings
        first_ms = min(settings.retry_backoff_ms, _FIRST_BACKOFF_MS)
        backoff = Backoff(first_ms, settings.retry_backoff_max_ms, self._cluster.runtime.entropy)
        return await retrying(self._cluster, attempt, timeout_ms=self._timeout_ms, backoff=backoff)


class CoordinatorRequests:
    """The requests of one producer; `machine` and `sequences` get their results."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        machine: TransactionMachine,
        sequences: TransactionManager,
    ) -> None:
        self.machine = machine
        self._cluster = cluster
        self._settings = settings
        self._sequences = sequences
        self._coordinator = _Coordinator(
            cluster, machine.transactional_id, CoordinatorType.TRANSACTION, settings.max_block_ms
        )
        self._groups: dict[str, _Coordinator] = {}

    @property
    def identity(self) -> ProducerIdAndEpoch:
        assert self._sequences.producer_id_and_epoch is not None
        return self._sequences.producer_id_and_epoch

    @property
    def uses_version_2(self) -> bool:
        """Return whether the cluster's `transaction.version` is 2 or later; unknown without a connection: as before."""
        connection = self._coordinator.connection()
        if connection is None:
            return self.machine.uses_version_2
        return connection.finalized_features.get("transaction.version", 0) >= 2

    async def init_producer_id(self) -> PreparedTransaction | None:
        """Get a producer id or a new epoch; return the prepared transaction that the coordinator has kept, if any."""
        identity = self._sequences.producer_id_and_epoch
        two_phase = self._settings.transaction_two_phase_commit_enable
        message = {
            "transactional_id": self.machine.transactional_id,
            "transaction_timeout": self.machine.timeout_ms,
            "producer_id": -1 if identity is None else identity.producer_id,
            "producer_epoch": -1 if identity is None else identity.epoch,
            "enable2_pc": two_phase,
            "keep_prepared_txn": two_phase and identity is None,
        }
        at_least = _TWO_PHASE_COMMIT_FROM if two_phase else 0
        response = await self._coordinator.request(ApiKey.INIT_PRODUCER_ID, message, at_least=at_least)
        self._sequences.set_producer_id_and_epoch(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
        ongoing = optional(response, "ongoing_txn_producer_id", -1)
        return None if ongoing < 0 else PreparedTransaction(ongoing, response.ongoing_txn_producer_epoch)

    async def add_partitions(self) -> None:
        """Add the machine's new partitions to the transaction."""
        machine = self.machine
        partitions = machine.add_partitions()
        message = {
            "v3_and_below_transactional_id": machine.transactional_id,
            "v3_and_below_producer_id": self.identity.producer_id,
            "v3_and_below_producer_epoch": self.identity.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": [each.partition for each in some]} for topic, some in by_topic(partitions)
            ],
            "transactional_id": machine.transactional_id,
        }

        def codes(response: Any) -> Iterable[tuple[str, ErrorCode]]:
            return (
                (f", {topic.name}-{each.partition_index}", each.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            )

        await self._coordinator.request(
            ApiKey.ADD_PARTITIONS_TO_TXN, message, codes, at_most=_LAST_ADD_PARTITIONS_OF_CLIENTS
        )
        machine.partitions_added(partitions)

    async def send_offsets(self, offsets: Mapping[Any, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        """Commit a group's offsets as part of the transaction."""
        machine, group_id = self.machine, group.group_id
        machine.add_offsets()
        message = {
            "transactional_id": machine.transactional_id,
            "group_id": group_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.group_instance_id,
            "topics": offset_topics(offsets),
        }
        if not machine.uses_version_2:
            await self._coordinator.request(ApiKey.ADD_OFFSETS_TO_TXN, message)
        if group_id not in self._groups:
            self._groups[group_id] = _Coordinator(
                self._cluster, group_id, CoordinatorType.GROUP, self._settings.max_block_ms
            )

        def codes(response: Any) -> Iterable[tuple[str, ErrorCode]]:
            return (
                (f", group {group_id!r}, {topic.name}-{each.partition_index}", each.error_code)
                for topic in response.topics
                for each in topic.partitions
            )

        at_most = _LAST_OFFSET_COMMIT_WITH_NAMES if machine.uses_version_2 else _LAST_OFFSET_COMMIT_OF_VERSION_1
        await self._groups[group_id].request(ApiKey.TXN_OFFSET_COMMIT, message, codes, at_most=at_most)

    async def end_transaction(self, *, committed: bool) -> None:
        """Commit or abort; with `transaction.version` 2, take over the new epoch."""
        message = {
            "transactional_id": self.machine.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
            "committed": committed,
        }
        at_most = None if self.machine.uses_version_2 else LAST_END_TXN_OF_VERSION_1
        response = await self._coordinator.request(ApiKey.END_TXN, message, at_most=at_most)
        if (producer_id := optional(response, "producer_id", -1)) >= 0:
            self._sequences.set_producer_id_and_epoch(ProducerIdAndEpoch(producer_id, response.producer_epoch))


def _raise_first(what: str, found: Iterable[tuple[str, ErrorCode]]) -> None:
    """Raise the first error, preferably one that is not retriable."""
    errors = [(where, code) for where, code in found if code not in {ErrorCode.none, ErrorCode.operation_not_attempted}]
    for where, code in sorted(errors, key=lambda each: each[1].retriable):
        raise KafkaError(code, f"{what}{where}: {explained(code)}")
