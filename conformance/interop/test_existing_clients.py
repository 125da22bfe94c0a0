"""Records of every client are read by every other, byte for byte: keys, values, headers, timestamps, codecs (M1)."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.interop.existing_clients import CLIENTS, CODECS, DEADLINE_S, Client, Message, batches_of
from conformance.interop.odradek_client import Odradek
from odradek.clients import Producer
from odradek.protocol.batches.compression import Codec
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

NOW_MS: Final = 1_790_000_000_000
ALL: Final[Sequence[Client]] = (*CLIENTS, Odradek())

NAMES: Final = [
    pytest.param(client, id=client.name, marks=[pytest.mark.needs("kcat")] if client.name == "kcat" else [])
    for client in ALL
]


def messages() -> list[Message]:
    """Everything that a record may be, in each of five partitions: one for each codec."""
    contents: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"", b"", ()),
        (b"tombstone", None, ()),
        (bytes(range(256)), bytes(range(256)) * 3, ()),
        (b"headers", b"v", (("twice", b"1"), ("twice", b"2"), ("s\u00ed", b"yes"))),
        (b"empty header", b"v", (("empty", b""),)),
        (b"null header", b"v", (("null", None),)),
        (b"binary header", b"v", (("bytes", b"\x01\x02\xfe\xff"),)),
        (b"large", b"the same words again and again " * 6000, ()),
        (b"noise", random.Random(1).randbytes(60_000), ()),
    ]
    return [
        Message(partition=partition, key=key, value=value, headers=headers, timestamp_ms=NOW_MS + index * 1000)
        for partition in range(len(CODECS))
        for index, (key, value, headers) in enumerate(contents)
    ]


@cache
def written_by(writer: Client, servers: str) -> tuple[str, list[Message]]:
    """A topic that `writer` has filled, and what it wrote there; filled once."""
    topic = f"written-by-{writer.name}"
    CLIENTS[0].create(servers, topic, len(CODECS))
    wrote = [message for message in messages() if writer.can_write(message)]
    for partition, codec in enumerate(CODECS):
        writer.write(servers, topic, [message for message in wrote if message.partition == partition], codec)
    return topic, wrote


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_records_of_one_client_are_read_by_every_other(servers: str, writer: Client, reader: Client):
    topic, wrote = written_by(writer, servers)
    read = reader.read(servers, topic, len(CODECS), len(wrote))
    assert [writer.shown(reader.shown(message)) for message in read] == [
        reader.shown(writer.shown(message)) for message in wrote
    ]


@pytest.mark.parametrize("writer", NAMES)
def test_batches_of_compressing_clients_are_compressed(served: ServedBroker, writer: Client):
    """Some librdkafka releases silently stop compressing when a broker's Produce versions displease them."""
    topic = f"compressed-by-{writer.name}"
    CLIENTS[0].create(served.bootstrap_servers, topic, len(CODECS))
    text = Message(partition=0, key=None, value=b"again and " * 3000, timestamp_ms=NOW_MS)
    for partition, codec in enumerate(CODECS):
        writer.write(served.bootstrap_servers, topic, [replace(text, partition=partition)], codec)
    for partition, codec in enumerate(CODECS):
        headers = batches_of(served.data_dir, topic, partition)
        assert {header.codec for header in headers} == {Codec[codec.upper()]}
        assert (sum(header.size for header in headers) < 3000) is (codec != "none")


# ---- Records without timestamps --------------------------------------------------------------------------------------

COUNT = 200


IN_2020_MS = 1_577_836_800_000


@pytest.mark.long
def test_records_without_timestamps_survive_retention_checks(tmp_path: Path) -> None:
    options = {"log.retention.check.interval.ms": "100", "offsets.topic.num.partitions": "1"}
    with ServedBroker(tmp_path / "data", options=options) as broker:
        servers = broker.bootstrap_servers
        for topic in ("t", "old"):
            CLIENTS[0].create(servers, topic, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        failures: list[object] = []
        for number in range(COUNT):
            producer.produce(
                "t",
                b"%d" % number,
                timestamp=-1,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        producer.produce("old", b"canary", timestamp=IN_2020_MS)
        assert producer.flush(DEADLINE_S) == 0
        assert not failures
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
        _until_retention_has_taken(consumer, confluent_kafka.TopicPartition("old", 0))
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[confluent_kafka.Message] = []
        while len(found) < COUNT and (polled := consumer.consume(COUNT - len(found), DEADLINE_S)):
            found += polled
        consumer.close()
        assert [message.error() for message in found] == [None] * COUNT
        assert [int(message.value() or b"") for message in found] == list(range(COUNT))
        assert {message.timestamp()[1] for message in found} == {-1}


def _until_retention_has_taken(consumer: confluent_kafka.Consumer, place: confluent_kafka.TopicPartition) -> None:
    """Return when a check of all logs has deleted what is too old."""
    eventually(
        lambda: consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[0] > 0,
        within_s=DEADLINE_S,
        what="retention has deleted old records",
    )


# ---- Partitions of keys ----------------------------------------------------------------------------------------------

PARTITIONS: Final = 7


KEYS: Final = [random.Random(number).randbytes(number) for number in range(1, 40)]


def by_librdkafka(servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(topic, key=key)
    assert producer.flush(DEADLINE_S) == 0


def by_kafka_python(servers: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    for key in KEYS:
        producer.send(topic, key=key)
    producer.close()


async def by_aiokafka(servers: str, topic: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for key in KEYS:
            await producer.send(topic, key=key)


async def by_odradek(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for key in KEYS:
            await producer.send(topic, key=key)


def test_every_library_sends_a_key_to_the_same_partition(servers: str, topic: str):
    CLIENTS[0].create(servers, topic, PARTITIONS)
    by_librdkafka(servers, topic)
    by_kafka_python(servers, topic)
    asyncio.run(by_aiokafka(servers, topic))
    asyncio.run(by_odradek(servers, topic))
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for message in CLIENTS[0].read(servers, topic, PARTITIONS, 4 * len(KEYS)):
        seen[message.key].append(message.partition)
    assert set(seen) == set(KEYS)
    assert all(len(partitions) == 4 and len(set(partitions)) == 1 for partitions in seen.values())
    assert len({partitions[0] for partitions in seen.values()}) == PARTITIONS


# ---- Refused features ------------------------------------------------------------------------------------------------


def test_more_replicas_than_there_are_brokers_are_refused(servers: str, topic: str):
    admin = AdminClient({"bootstrap.servers": servers})
    future = admin.create_topics([NewTopic(topic, 1, 3)])[topic]
    with pytest.raises(KafkaException) as caught:
        future.result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_a_record_larger_than_the_topic_allows_is_refused_and_the_next_one_written(servers: str, topic: str):
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
    admin.create_topics([wanted])[topic].result(DEADLINE_S)
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for size in (5000, 10):
        producer.produce(topic, bytes(size), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


def test_fetching_beyond_the_log_end_is_offset_out_of_range(servers: str, topic: str):
    CLIENTS[0].create(servers, topic, 1)
    settings = {"bootstrap.servers": servers, "group.id": "none", "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 1000)])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_producing_to_an_unknown_topic_creates_it(servers: str, topic: str):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"first")
    assert producer.flush(DEADLINE_S) == 0
    assert topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_S).topics
