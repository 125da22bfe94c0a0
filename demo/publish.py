"""Records into topics, in order of time, as fast as the producer takes them."""

from collections.abc import Callable, Mapping, Sequence

from demo.source import Event
from odradek.clients import Admin, NewTopic, Producer

_STEP = 2_000
"""After so many records the progress bar hears of them."""


async def create_topics(bootstrap_servers: str, topics: Mapping[str, int], replication_factor: int) -> None:
    """Create topics with these numbers of partitions. Raises `KafkaError`."""
    # The records are years old: without the first, a broker would take them for expired.
    configs = {"retention.ms": "-1", "min.insync.replicas": "2"}
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics(
            NewTopic(name=name, partitions=count, replication_factor=replication_factor, configs=configs)
            for name, count in topics.items()
        )


async def publish(bootstrap_servers: str, events: Sequence[Event], advance: Callable[[int], None]) -> None:
    """Send all, and return when all are acknowledged; `advance(count)` on the way."""
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
