"""The records of `__transaction_state`, declared as in Kafka 4.3's definitions, with its names, types and versions."""

from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.field_types import INT8, INT16, INT32, INT64, STRING
from odradek.protocol.internal_records.record_types import RecordType, RecordTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey:
    """The key of a transactional id."""

    transactional_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchema:
    """Partitions of a topic in the transaction."""

    topic: str = field(metadata=STRING)
    partition_ids: tuple[int, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue:
    """The state of a transactional id. Times are ms since 1970; `transaction_status` is Kafka's TransactionState.

    Only version 1 has the tagged fields (KIP-890).
    """

    producer_id: int = field(metadata=INT64)
    previous_producer_id: int = field(metadata={**INT64, "tag": 0, "versions": "1+"}, default=-1)
    next_producer_id: int = field(metadata={**INT64, "tag": 1, "versions": "1+"}, default=-1)
    producer_epoch: int = field(metadata=INT16)
    next_producer_epoch: int = field(metadata={**INT16, "tag": 3, "versions": "1+"}, default=-1)
    transaction_timeout_ms: int = field(metadata=INT32)
    transaction_status: int = field(metadata=INT8)
    transaction_partitions: tuple[PartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata=INT64)
    transaction_start_timestamp_ms: int = field(metadata=INT64)
    client_transaction_version: int = field(metadata={**INT16, "tag": 2, "versions": "1+"}, default=0)


TRANSACTION_RECORDS: Final = RecordTypes(
    RecordType(number=0, key=TransactionLogKey, value=TransactionLogValue, last_version=1, flexible_from=1, writes=1)
)
