"""The records of `__transaction_state` as values, and their codec."""

from typing import NamedTuple

from odradek.broker.transactions.machine.transaction import RECORDED, TransactionMetadata, TransactionState
from odradek.model import TopicPartition
from odradek.model.names import numbers_by_topic
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.record_types import UnknownKey
from odradek.protocol.internal_records.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)


class TransactionRecord(NamedTuple):
    """The metadata of a transactional id; None deletes the id."""

    transactional_id: str
    metadata: TransactionMetadata | None


class TransactionRecordCodec:
    """Encodes and decodes keys and values, in the version that Kafka writes."""

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        metadata = record.metadata
        return TRANSACTION_RECORDS.encode(
            TransactionLogKey(transactional_id=record.transactional_id), None if metadata is None else _value(metadata)
        )

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | None:
        if key is None:
            return None
        known, decoded = TRANSACTION_RECORDS.decode(key, value)
        if isinstance(known, UnknownKey):
            return None
        transactional_id: str = known.transactional_id
        return TransactionRecord(transactional_id, None if decoded is None else _metadata(transactional_id, decoded))


def _value(metadata: TransactionMetadata) -> TransactionLogValue:
    topics = numbers_by_topic(metadata.partitions)
    partitions = tuple(PartitionsSchema(topic=topic, partition_ids=tuple(some)) for topic, some in topics.items())
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        next_producer_epoch=metadata.next_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )


def _metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    if value.transaction_status not in RECORDED:
        raise MalformedMessageError(f"{transactional_id!r} has the unknown status {value.transaction_status}")
    if value.producer_id < 0 or value.producer_epoch < 0:
        raise MalformedMessageError(f"{transactional_id!r} has no producer id or no epoch")
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
