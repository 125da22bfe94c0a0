"""Describes the producers of a partition and aborts hanging transactions (KIP-664)."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from odradek.clients.cluster import Cluster
from odradek.clients.retry import DEFAULT_API_TIMEOUT_MS, retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey


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


async def describe_producers(
    cluster: Cluster, partition: TopicPartition, *, timeout_ms: int = DEFAULT_API_TIMEOUT_MS
) -> list[ProducerDescription]:
    """Implement `Admin.describe_producers`; the result is sorted by producer id."""

    async def attempt() -> list[ProducerDescription]:
        topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
        answer = await _request_leader(cluster, partition, ApiKey.DESCRIBE_PRODUCERS, {"topics": topics}, timeout_ms)
        (result,) = answer.topics[0].partitions
        if result.error_code != ErrorCode.none:
            raise _error(partition, result.error_code, result.error_message)
        return sorted(map(_description, result.active_producers), key=lambda each: each.producer_id)

    return await retrying(cluster, attempt, timeout_ms=timeout_ms)


async def abort_transaction(
    cluster: Cluster,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timeout_ms: int = DEFAULT_API_TIMEOUT_MS,
) -> None:
    """Implement `Admin.abort_transaction`: write an abort marker to `partition`."""
    marker = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": 0,
        "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
    }

    async def attempt() -> None:
        answer = await _request_leader(cluster, partition, ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, timeout_ms)
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code != ErrorCode.none:
            raise _error(partition, code, None)

    await retrying(cluster, attempt, timeout_ms=timeout_ms)


async def _request_leader(
    cluster: Cluster, partition: TopicPartition, api: ApiKey, message: Mapping[str, Any], timeout_ms: int
) -> Any:
    connection = await cluster.connections.to_broker(await cluster.leader(partition, timeout_ms=timeout_ms))
    return await connection.request(api, message)


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
