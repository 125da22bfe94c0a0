"""Our producer on Apache Kafka and on our broker: the same records in both, and the same offsets (M2)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from conformance.peers.compare_with_kafka import DEADLINE_S, BrokerPair
from odradek.clients import Admin, Consumer, Producer
from odradek.clients.consumer import ConsumerRecord
from odradek.model import KafkaError, TopicPartition

pytestmark = pytest.mark.needs("kafka")

NOW = 1_790_000_000_000
COUNT = 200
Scene = Callable[[str], Awaitable[Any]]


def on_both(pair: BrokerPair, scene: Scene) -> Any:
    """Run a scene on both; what it returns is the same."""

    async def limited(servers: str) -> Any:
        async with asyncio.timeout(3 * DEADLINE_S):
            return await scene(servers)

    ours, kafkas = (asyncio.run(limited(each.bootstrap_servers)) for each in (pair.ours, pair.kafka))
    assert ours == kafkas
    return ours


async def read(servers: str, topic: str, partitions: int) -> list[ConsumerRecord]:
    """All records, by partition and offset."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = sum((await consumer.end_offsets(places)).values())
        records: list[ConsumerRecord] = []
        while len(records) < ends:
            records += await consumer.poll(1_000)
    return sorted(records, key=lambda record: (record.partition, record.offset))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_and_rows_are_the_same_in_both(pair: BrokerPair, codec: str) -> None:
    topic = f"producer-{codec}"
    keys = [b"k%d" % (number % 17) for number in range(COUNT)]
    table = pa.table(
        {
            "key": keys,
            "value": pa.array([None if number % 9 == 0 else f"row {number}" * 5 for number in range(COUNT)]),
            "timestamp": [NOW + number for number in range(COUNT)],
        }
    )

    async def scene(servers: str) -> Any:
        places: list[Any] = []
        async with Producer(servers, compression_type=codec, batch_size=2_000, linger_ms=0) as producer:
            for number, key in enumerate(keys):
                headers = {"n": b"%d" % number, "nothing": None}
                value = b"%d" % number * 7
                sent = await producer.send(topic, value, key, timestamp_ms=NOW + number, headers=headers)
                places.append(sent)
            rows = await producer.send_arrow(table, topic, max_batch_bytes=3_000)
            places = [(place.partition, place.offset) for place in await asyncio.gather(*places)]
            offsets = []
            for batch in rows:
                found = (await batch.offsets).tolist()
                offsets += [(row, batch.partition, found[at]) for at, row in enumerate(batch.rows.tolist())]
        return places, offsets, await read(servers, topic, 3)

    pair.create({topic: {}}, 3)
    places, offsets, records = on_both(pair, scene)
    assert len(set(places)) == len(offsets) == COUNT
    assert len(records) == 2 * COUNT


def test_batches_that_are_too_large_are_split_for_both(pair: BrokerPair) -> None:
    topic = "producer-small"

    async def scene(servers: str) -> Any:
        async with Producer(servers, batch_size=30_000, linger_ms=50) as producer:
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number * 20, b"k", timestamp_ms=NOW)
            table = pa.table({"value": [b"row %d" % number * 10 for number in range(COUNT)]})
            rows = await producer.send_arrow(table, topic, timestamp_ms=NOW, partition=0)
            await producer.flush()
            assert producer.metrics()["batch_split_total"] > 2
            assert producer.metrics()["record_error_total"] == 0
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await (await producer.send(topic, b"x" * 2_000))
            await (await producer.send(topic, b"after", timestamp_ms=NOW))
            return [(await batch.offsets).tolist() for batch in rows], await read(servers, topic, 1)

    pair.create({topic: {"max.message.bytes": "1000"}}, 1)
    (offsets,), records = on_both(pair, scene)
    assert offsets == list(range(COUNT, 2 * COUNT))
    assert len(records) == 2 * COUNT + 1


def test_a_topic_may_get_partitions_and_be_created_anew_under_a_producer(pair: BrokerPair) -> None:
    topic = "producer-anew"

    async def scene(servers: str) -> Any:
        async with Admin(servers) as admin, Producer(servers, linger_ms=0) as producer:
            for number in range(20):
                await producer.send(topic, b"old %d" % number, partition=0)
            await admin.create_partitions(topic, 2)
            added = None
            while added is None:
                # The broker that is asked may not know the partition yet.
                with contextlib.suppress(KafkaError):
                    added = await (await producer.send(topic, b"added", partition=1))
            await producer.flush()
            await admin.delete_topics([topic])
            created = False
            while not created:
                with contextlib.suppress(KafkaError):
                    await admin.create_topic(topic, partitions=1, replication_factor=1)
                    created = True
            for number in range(20):
                await producer.send(topic, b"new %d" % number, partition=0, timestamp_ms=NOW)
            await producer.flush()
        return [record.value for record in await read(servers, topic, 1)]

    pair.create({topic: {}}, 1)
    assert on_both(pair, scene) == [b"new %d" % number for number in range(20)]
