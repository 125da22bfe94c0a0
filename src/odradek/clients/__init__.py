"""Asyncio clients for a Kafka cluster, without threads.

    async with Producer("localhost:9092") as producer:
        await producer.send("greetings", b"hello")
    async with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        async for record in consumer: ...

`blocking` has the same clients without asyncio. Names are imported at their first use, because importing the protocol's
modules is slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.clients.admin import Admin, NewTopic
    from odradek.clients.consumer import (
        Consumer,
        ConsumerRecord,
        ConsumerState,
        LogTruncationError,
        RecordDeserializationError,
    )
    from odradek.clients.fetch import CorruptRecordsError
    from odradek.clients.group_offsets import OffsetAndMetadata
    from odradek.clients.producer import Producer, RecordMetadata
    from odradek.clients.producer.transactions.errors import ProducerFencedError, TransactionAbortedError
    from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
    from odradek.clients.simple_consumer import Fetched, PartitionLeader, SimpleConsumer
    from odradek.clients.zookeeper_consumer import TopicFilter, ZookeeperConsumer

_HOMES: Final = {
    "Admin": "odradek.clients.admin",
    "Consumer": "odradek.clients.consumer",
    "ConsumerRecord": "odradek.clients.consumer",
    "ConsumerState": "odradek.clients.consumer",
    "CorruptRecordsError": "odradek.clients.fetch",
    "Fetched": "odradek.clients.simple_consumer",
    "LogTruncationError": "odradek.clients.consumer",
    "NewTopic": "odradek.clients.admin",
    "OffsetAndMetadata": "odradek.clients.group_offsets",
    "PartitionLeader": "odradek.clients.simple_consumer",
    "PreparedTransaction": "odradek.clients.producer.transactions.prepared_transaction",
    "Producer": "odradek.clients.producer",
    "ProducerFencedError": "odradek.clients.producer.transactions.errors",
    "RecordDeserializationError": "odradek.clients.consumer",
    "RecordMetadata": "odradek.clients.producer",
    "SimpleConsumer": "odradek.clients.simple_consumer",
    "TopicFilter": "odradek.clients.zookeeper_consumer",
    "TransactionAbortedError": "odradek.clients.producer.transactions.errors",
    "ZookeeperConsumer": "odradek.clients.zookeeper_consumer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


__all__ = [
    "Admin",
    "Consumer",
    "ConsumerRecord",
    "ConsumerState",
    "CorruptRecordsError",
    "Fetched",
    "LogTruncationError",
    "NewTopic",
    "OffsetAndMetadata",
    "PartitionLeader",
    "PreparedTransaction",
    "Producer",
    "ProducerFencedError",
    "RecordDeserializationError",
    "RecordMetadata",
    "SimpleConsumer",
    "TopicFilter",
    "TransactionAbortedError",
    "ZookeeperConsumer",
]
