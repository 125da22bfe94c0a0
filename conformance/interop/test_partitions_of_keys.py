"""Four libraries write each key to the same partition of one topic (M2)."""

import asyncio
import random
from collections import defaultdict
from typing import Final

import aiokafka
import confluent_kafka
import kafka

from conformance.interop.existing_clients import CLIENTS, DEADLINE_S
from odradek.clients import Producer

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
