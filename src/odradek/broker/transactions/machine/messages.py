"""Requests to the transaction coordinator, its replies, and the events that it reports.

A request that cannot be served fails with `KafkaError`. One that needs a new producer id is answered with
`ProducerIdNeeded`, and has to be sent again with `new_producer_id`.
"""

from msgspec import Struct

from odradek.broker.coordinators.machine import Producer
from odradek.broker.transactions.machine.transaction import NO_EPOCH, NO_PRODUCER_ID
from odradek.model import TopicPartition


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    """An InitProducerId request of a transactional producer; the reply is an `InitProducerIdReply`."""

    timeout_ms: int
    producer: Producer | None = None
    """The producer id and epoch that the client has, if it recovers from an error (KIP-360)."""
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False
    """Whether to keep an ongoing transaction, which else is aborted (KIP-939)."""
    new_producer_id: int = NO_PRODUCER_ID


class InitProducerIdReply(Struct, frozen=True, kw_only=True):
    """The producer id and epoch of the client, and those of the transaction that was kept."""

    producer: Producer
    ongoing: Producer = Producer(producer_id=NO_PRODUCER_ID, epoch=NO_EPOCH)


class AddPartitionsRequest(Struct, frozen=True, kw_only=True):
    """Adds partitions to the transaction; the reply is None."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    transaction_version: int = 0
    """The transaction version of the client."""


class VerifyPartitionsRequest(Struct, frozen=True, kw_only=True):
    """Asks which partitions are in the transaction; the reply is a frozenset of them."""

    producer: Producer
    partitions: frozenset[TopicPartition]


class EndTransactionRequest(Struct, frozen=True, kw_only=True):
    """Commits or aborts the transaction; the reply is the `Producer` with which the client continues."""

    producer: Producer
    is_commit: bool
    transaction_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


class MarkersWrittenRequest(Struct, frozen=True, kw_only=True):
    """Reports that all markers of `producer`'s transaction are written; the reply is None."""

    producer: Producer


class DescribeTransactionRequest(Struct, frozen=True, kw_only=True):
    """Asks for the `TransactionMetadata` of the id."""


Request = (
    InitProducerIdRequest
    | AddPartitionsRequest
    | VerifyPartitionsRequest
    | EndTransactionRequest
    | MarkersWrittenRequest
    | DescribeTransactionRequest
)


class ProducerIdNeeded(Struct, frozen=True, kw_only=True):
    """The reply to a request that needs a `new_producer_id`."""


class SendMarkers(Struct, frozen=True, kw_only=True):
    """The end of a transaction is committed: markers are to be written to its partitions."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionTimedOut(Struct, frozen=True, kw_only=True):
    """A transaction was aborted because it was open for longer than its timeout."""

    transactional_id: str
    producer: Producer
    timeout_ms: int


class ProducerInitialised(Struct, frozen=True, kw_only=True):
    """A client got a producer id and epoch."""

    transactional_id: str
    producer: Producer
