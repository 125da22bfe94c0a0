"""Our clients and librdkafka's over librdkafka's own mock cluster of three brokers: code that nobody here wrote."""

import asyncio
from typing import Any

import pytest

from odradek.clients import Consumer, Producer
from odradek.clients.cluster import open_cluster
from odradek.clients.offsets import LATEST, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records

confluent_kafka = pytest.importorskip("confluent_kafka")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500


@pytest.fixture(scope="module")
def mock() -> Any:
    """A producer of librdkafka's that carries the mock cluster in it."""
    return confluent_kafka.Producer(
        {"bootstrap.servers": "localhost:1", "test.mock.num.brokers": 3, "log_level": 0, "batch.num.messages": 50}
    )


@pytest.fixture
def addresses(mock: Any) -> str:
    brokers = mock.list_topics(timeout=10).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def read_with_librdkafka(addresses: str, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": addresses, "group.id": "unused", "log_level": 0, "check.crcs": True}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        messages: list[Any] = []
        while len(messages) < count:
            some = consumer.consume(count - len(messages), timeout=30)
            assert some, f"only {len(messages)} of {count} records came within 30 s"
            messages += some
        assert all(message.error() is None for message in messages)
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka_reads_records_of_our_producer(addresses: str, codec: str, idempotent: bool) -> None:
    topic = f"ours-{codec}-{idempotent}"

    async def write() -> None:
        async with Producer(
            addresses, compression_type=codec, enable_idempotence=idempotent, batch_size=2_000
        ) as producer:
            for number in range(COUNT):
                key = b"k%d" % number if number % 3 else None
                value = b"v%d" % number if number % 5 else None
                headers = (("n", b"%d" % number), ("nothing", None))
                await producer.send(topic, value, key, timestamp_ms=1_700_000_000_000 + number, headers=headers)

    asyncio.run(write())
    messages = read_with_librdkafka(addresses, topic, COUNT)
    by_number = {int(dict(message.headers())["n"]): message for message in messages}
    assert sorted(by_number) == list(range(COUNT))
    for number, message in by_number.items():
        assert message.key() == (b"k%d" % number if number % 3 else None)
        assert message.value() == (b"v%d" % number if number % 5 else None)
        assert message.timestamp()[1] == 1_700_000_000_000 + number
        assert message.headers()[1] == ("nothing", None)


@pytest.mark.parametrize("codec", CODECS)
def test_our_consumer_reads_records_of_librdkafka(mock: Any, addresses: str, codec: str) -> None:
    topic = f"theirs-{codec}"
    writer = confluent_kafka.Producer(
        {"bootstrap.servers": addresses, "compression.type": codec, "log_level": 0, "batch.num.messages": 50}
    )
    for number in range(COUNT):
        writer.produce(topic, b"v%d" % number, b"k%d" % number, partition=number % 4, headers={"n": b"%d" % number})
    assert writer.flush(30) == 0

    async def read() -> tuple[list[Any], list[int]]:
        async with Consumer(topic, bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
            records: list[Any] = []
            async with asyncio.timeout(30):
                while len(records) < COUNT:
                    records += await consumer.poll(max_records=37)
        place = TopicPartition(topic, 1)
        offsets: list[int] = []
        async with open_cluster(addresses) as cluster:
            end = (await list_offsets(cluster, {place: LATEST}))[place].offset
            async for buffer in PartitionReader(cluster, place, 0, end, max_bytes=1_000):
                for position, _ in iterate_batches(buffer):
                    offsets += [record.offset for record in decode_records(buffer, position)]
        return records, offsets

    records, offsets = asyncio.run(read())
    assert sorted(int(record.headers[0][1]) for record in records) == list(range(COUNT))
    assert all(record.value == b"v" + record.key[1:] for record in records)
    assert all(int(record.value[1:]) % 4 == record.partition for record in records)
    assert offsets == list(range(COUNT // 4))


def test_keys_have_the_same_partitions_as_with_librdkafkas_murmur2(addresses: str) -> None:
    """M2: `(murmur2(key) & 0x7fffffff) % partitions` in every client."""
    keys = [b"", b"a", b"abc", b"key-7", bytes(range(256))]

    async def place() -> list[int]:
        async with Producer(addresses) as producer:
            return [(await (await producer.send("placed", b"v", key))).partition for key in keys]

    ours = asyncio.run(place())
    theirs: list[int] = []
    writer = confluent_kafka.Producer(
        {"bootstrap.servers": addresses, "partitioner": "murmur2", "log_level": 0, "linger.ms": 0}
    )
    for key in keys:
        writer.produce("placed", b"v", key, on_delivery=lambda _, message: theirs.append(message.partition()))
        assert writer.flush(30) == 0
    assert ours == theirs
