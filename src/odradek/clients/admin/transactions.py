"""Lists, describes and aborts transactions and the producers of partitions; finds hanging ones (KIP-664)."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from odradek.clients.arguments import Partition, names_of, partition_of, partitions_of
from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import LAST_END_TXN_OF_VERSION_1, CoordinatorType, ask_coordinators
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import milliseconds

if TYPE_CHECKING:
    from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction


class ProducerDescription(Struct, frozen=True, kw_only=True):
    """The state of an idempotent producer in one partition. `last_timestamp` is in ms, -1 if unknown.

    `current_txn_start_offset` is the first offset of the open transaction, if any; `coordinator_epoch` is the epoch in
    the producer's last transaction marker, if any.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_txn_start_offset: int | None


class TransactionListing(Struct, frozen=True, kw_only=True):
    """A transactional id with its producer and Kafka's name of its state, such as `Ongoing` or `CompleteCommit`."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(Struct, frozen=True, kw_only=True):
    """The last transaction of a transactional id. `start_ms` is ms since 1970; None unless it is open.

    `partitions` are those of an open transaction; while it is ended, those that still lack its marker.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    coordinator_id: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_prepared(self) -> bool:
        """Whether it is open until its producer ends it: a transaction of two-phase commit (KIP-939) never expires."""
        return self.state == "Ongoing" and self.timeout_ms == NO_TIMEOUT_MS


class HangingTransaction(Struct, frozen=True, kw_only=True):
    """An open transaction of `producer` in `partition` that its coordinator will not end."""

    partition: TopicPartition
    producer: ProducerDescription


_FENCING_TIMEOUT_MS: Final = 1
"""The transaction timeout of a producer that is initialised only to end another's transaction."""
NO_TIMEOUT_MS: Final = (1 << 31) - 1
"""The timeout that coordinators give transactions of two-phase commit."""


async def list_transactions(cluster: Cluster, *, states: Iterable[str] = ()) -> list[TransactionListing]:
    """Return the transactional ids of all coordinators, sorted; filter by `states` (`Ongoing`, …)."""
    return await _list(cluster, states=states)


async def _list(
    cluster: Cluster, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
) -> list[TransactionListing]:
    message = {
        "state_filters": list(states),
        "producer_id_filters": list(producer_ids),
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }

    async def ask(node_id: int) -> list[TransactionListing]:
        connection = await cluster.connections.to_broker(node_id)
        response = await connection.request(ApiKey.LIST_TRANSACTIONS, message)
        if response.error_code != ErrorCode.none:
            raise KafkaError(response.error_code, f"broker {node_id}: {explained(response.error_code)}")
        if response.unknown_state_filters:
            names = ", ".join(response.unknown_state_filters)
            raise KafkaError(ErrorCode.invalid_request, f"broker {node_id} knows no transaction state {names}")
        return [
            TransactionListing(
                transactional_id=each.transactional_id, producer_id=each.producer_id, state=each.transaction_state
            )
            for each in response.transaction_states
        ]

    async def attempt() -> list[TransactionListing]:
        await cluster.refresh()
        answers = await asyncio.gather(*map(ask, cluster.metadata.nodes))
        # During a coordinator change, two brokers may list a transactional id.
        return [
            found for _, found in sorted({each.transactional_id: each for some in answers for each in some}.items())
        ]

    return await retrying(cluster, attempt)


async def describe_transactions(cluster: Cluster, ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
    """Return the last transaction of each transactional id, or the `KafkaError` of that id."""

    async def ask(connection: Any, node_id: int, some: list[str]) -> dict[str, TransactionDescription | KafkaError]:
        response = await connection.request(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": some})
        return {each.transactional_id: _transaction(each, node_id) for each in response.transaction_states}

    return await ask_coordinators(cluster, names_of(ids), ask, CoordinatorType.TRANSACTION)


async def terminate_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Abort the id's open transaction, also a prepared one, and fence its producer (KIP-939)."""
    message = {
        "transactional_id": transactional_id,
        "transaction_timeout": _FENCING_TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "enable2_pc": False,
        "keep_prepared_txn": False,
    }

    async def ask(connection: Any, node_id: int, some: list[str]) -> dict[str, KafkaError | None]:
        del node_id, some
        code = (await connection.request(ApiKey.INIT_PRODUCER_ID, message)).error_code
        reason = f"transactional id {transactional_id!r}: {explained(code)}"
        return {transactional_id: None if code == ErrorCode.none else KafkaError(code, reason)}

    answers = await ask_coordinators(cluster, [transactional_id], ask, CoordinatorType.TRANSACTION)
    error = answers[transactional_id]
    if error is not None:
        raise error


async def end_prepared_transactions(
    cluster: Cluster, prepared: "Mapping[str, PreparedTransaction]", *, committed: bool
) -> dict[str, KafkaError | None]:
    """Commit or abort prepared transactions of other producers, by transactional id; return the error of each.

    A transaction that has ended in the same way is no error, as long as its producer has started no other one.
    """

    async def ask(connection: Any, node_id: int, some: list[str]) -> dict[str, KafkaError | None]:
        del node_id
        has_version_2 = connection.finalized_features.get("transaction.version", 0) >= 2
        at_most = None if has_version_2 else LAST_END_TXN_OF_VERSION_1

        async def end(transactional_id: str) -> KafkaError | None:
            producer_id, epoch = prepared[transactional_id]
            message = {
                "transactional_id": transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "committed": committed,
            }
            code = (await connection.request(ApiKey.END_TXN, message, at_most=at_most)).error_code
            reason = f"transactional id {transactional_id!r}: {explained(code)}"
            return None if code == ErrorCode.none else KafkaError(code, reason)

        return dict(zip(some, await asyncio.gather(*map(end, some)), strict=True))

    return await ask_coordinators(cluster, prepared, ask, CoordinatorType.TRANSACTION)


async def find_hanging_transactions(cluster: Cluster, partitions: Iterable[Partition]) -> list[HangingTransaction]:
    """Return the transactions that are open in a partition and that no coordinator will end."""
    wanted = partitions_of(partitions)
    described = await asyncio.gather(*(describe_producers(cluster, each) for each in wanted))
    suspects = [
        HangingTransaction(partition=partition, producer=producer)
        for partition, producers in zip(wanted, described, strict=True)
        for producer in producers
        if producer.current_txn_start_offset is not None
    ]
    if not suspects:
        return []
    # The coordinators are asked after the partitions: a transaction that has ended since hangs nowhere.
    ids = sorted({each.producer.producer_id for each in suspects})
    listed = await _list(cluster, producer_ids=ids)
    known = await describe_transactions(cluster, (each.transactional_id for each in listed))
    held = {
        (each.producer_id, partition)
        for each in known.values()
        if isinstance(each, TransactionDescription)
        for partition in each.partitions
    }
    unknown = [each for each in suspects if (each.producer.producer_id, each.partition) not in held]
    still_open = await asyncio.gather(*(describe_producers(cluster, each.partition) for each in unknown))
    return [each for each, producers in zip(unknown, still_open, strict=True) if each.producer in producers]


async def describe_producers(cluster: Cluster, partition: Partition) -> list[ProducerDescription]:
    """Return the idempotent producers that the partition's leader knows, and their open transactions (KIP-664)."""
    asked = partition_of(partition)

    async def attempt() -> list[ProducerDescription]:
        topics = [{"name": asked.topic, "partition_indexes": [asked.partition]}]
        answer = await _request_leader(cluster, asked, ApiKey.DESCRIBE_PRODUCERS, {"topics": topics})
        (result,) = answer.topics[0].partitions
        if result.error_code != ErrorCode.none:
            raise _error(asked, result.error_code, result.error_message)
        return sorted(map(_description, result.active_producers), key=lambda each: each.producer_id)

    return await retrying(cluster, attempt)


async def abort_transaction(
    cluster: Cluster, partition: Partition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
) -> None:
    """Abort a hanging transaction, which is open in `partition` and unknown to its coordinator.

    Take the epochs from `describe_producers`, 0 for an unknown coordinator epoch. Raises `KafkaError`
    INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if an epoch is older than that in the partition.
    """
    hanging = partition_of(partition)
    marker = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": 0,
        "topics": [{"name": hanging.topic, "partition_indexes": [hanging.partition]}],
    }

    async def attempt() -> None:
        answer = await _request_leader(cluster, hanging, ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code != ErrorCode.none:
            raise _error(hanging, code, None)

    await retrying(cluster, attempt)


async def _request_leader(cluster: Cluster, partition: TopicPartition, api: ApiKey, message: Mapping[str, Any]) -> Any:
    connection = await cluster.connections.to_broker(await cluster.leader(partition))
    return await connection.request(api, message)


def _transaction(found: Any, node_id: int) -> TransactionDescription | KafkaError:
    if found.error_code != ErrorCode.none:
        reason = f"transactional id {found.transactional_id!r}: {explained(found.error_code)}"
        if found.error_code == ErrorCode.transactional_id_not_found:
            reason = f"there is no transactional id {found.transactional_id!r}; `odradek transactions list` shows them"
        return KafkaError(found.error_code, reason)
    return TransactionDescription(
        transactional_id=found.transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.transaction_state,
        timeout_ms=milliseconds(found.transaction_timeout),
        start_ms=None if (start := round(found.transaction_start_time.timestamp() * 1000)) < 0 else start,
        coordinator_id=node_id,
        partitions=tuple(TopicPartition(topic.topic, each) for topic in found.topics for each in topic.partitions),
    )


def _description(producer: Any) -> ProducerDescription:
    start, epoch = producer.current_txn_start_offset, producer.coordinator_epoch
    return ProducerDescription(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=None if epoch < 0 else epoch,
        current_txn_start_offset=None if start < 0 else start,
    )


def _error(partition: TopicPartition, code: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(code, f"partition {partition}: {message or explained(code)}")
