"""Creates the demo's topics and publishes the records in order of time, at full speed."""

from collections.abc import Callable, Mapping, Sequence

from demo.source import Event
from odradek.clients import Admin, NewTopic, Producer

_STEP = 2_000
"""The number of records per step of the progress bar."""


async def create_topics(bootstrap_servers: str, topics: Mapping[str, int], replication_factor: int) -> None:
    """Create topics with these numbers of partitions. Raises `KafkaError`."""
    # The records are years old: with the default retention they would be expired.
    configs = {"retention.ms": "-1", "min.insync.replicas": "2"}
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics(
            NewTopic(name=name, partitions=count, replication_factor=replication_factor, configs=configs)
            for name, count in topics.items()
        )


async def publish(bootstrap_servers: str, events: Sequence[Event], advance: Callable[[int], None]) -> None:
    """Send all events, and wait until all are acknowledged; call `advance(count)` after every step."""
    async with Producer(
        bootstrap_servers, linger_ms=20, batch_size=256 << 10, compression_type="lz4", acks="all"
    ) as producer:
        sent = 0
        for event in events:
            await producer.send(
                event.topic,
                event.value,
                event.key,
                partition=event.partition,
                timestamp_ms=event.timestamp_ms,
                headers=(("row", event.header),),
            )
            sent += 1
            if sent % _STEP == 0:
                advance(_STEP)
        await producer.flush()
        advance(sent % _STEP)
