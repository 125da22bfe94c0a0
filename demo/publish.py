"""Records into topics, in order of time, as fast as the producer takes them."""

from collections.abc import Callable, Mapping, Sequence

from demo.source import Event
from odradek.clients.cluster import open_cluster
from odradek.clients.producer.producer import Producer
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey

_STEP = 2_000
"""After so many records the progress bar hears of them."""


async def create_topics(bootstrap_servers: str, topics: Mapping[str, int]) -> None:
    """Create topics with these numbers of partitions. Raises `KafkaError`."""
    async with open_cluster(bootstrap_servers) as cluster:
        connection = await cluster.controller()
        # The records are years old: without this, a broker would take them for expired.
        configs = [{"name": "retention.ms", "value": "-1"}]
        wanted = [
            {"name": name, "num_partitions": count, "replication_factor": -1, "assignments": [], "configs": configs}
            for name, count in topics.items()
        ]
        message = {"topics": wanted, "timeout": 30_000, "validate_only": False}
        response = await connection.request(ApiKey.CREATE_TOPICS, message)
        for topic in response.topics:
            if topic.error_code != ErrorCode.none:
                raise KafkaError(topic.error_code, f"topic {topic.name}: {topic.error_code.name}")
        for name in topics:
            await cluster.topic(name, timeout_ms=30_000)


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
