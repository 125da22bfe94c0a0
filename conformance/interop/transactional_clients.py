"""Transactional producers of existing clients behind one interface, and what each of them must get right."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from conformance.interop.existing_clients import DEADLINE_S

PARTITIONS: Final = 3


class Client(Protocol):
    """A producer with a transactional id, initialised."""

    fenced: tuple[type[Exception], ...]

    def begin(self) -> None: ...

    def write(self, topic: str, *values: str) -> None: ...

    def send_offset(self, topic: str, group: str, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


Make = Callable[[str, str], Client]
"""Of bootstrap servers and a transactional id."""


class Confluent:
    fenced: tuple[type[Exception], ...] = (confluent_kafka.KafkaException,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self.servers = servers
        settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
        self.producer = confluent_kafka.Producer(settings)
        self.producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, topic: str, *values: str) -> None:
        for number, value in enumerate(values):
            self.producer.produce(topic, value, partition=number % PARTITIONS)
        self.producer.flush(DEADLINE_S)

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": group})
        position = confluent_kafka.TopicPartition(topic, 0, offset)
        self.producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), DEADLINE_S)
        consumer.close()

    def commit(self) -> None:
        self.producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(DEADLINE_S)

    def close(self) -> None: ...


class KafkaPython:
    fenced: tuple[type[Exception], ...] = (kafka.errors.KafkaError,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self.producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, topic: str, *values: str) -> None:
        sent = [
            self.producer.send(topic, value.encode(), partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        for each in sent:
            each.get(DEADLINE_S)

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        offsets = {kafka.TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self.producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(1)


class Aiokafka:
    fenced: tuple[type[Exception], ...] = (aiokafka.errors.KafkaError,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self.runner = asyncio.Runner()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
            await producer.start()
            return producer

        self.producer = self._run(start())

    def _run(self, work: Any) -> Any:
        return self.runner.run(asyncio.wait_for(work, DEADLINE_S))

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def write(self, topic: str, *values: str) -> None:
        async def write() -> None:
            for number, value in enumerate(values):
                await self.producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)

        self._run(write())

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        self._run(self.producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._run(self.producer.stop())
        self.runner.close()


CLIENTS: Final[dict[str, Make]] = {"confluent-kafka": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}


def create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(DEADLINE_S)


def committed(servers: str, topic: str, count: int) -> list[str]:
    """Return the values that a read_committed consumer gets until it has read every partition, in some order."""
    settings = {"bootstrap.servers": servers, "group.id": f"r.{topic}", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    start = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, number, start) for number in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS or len(values) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value().decode())
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def committed_offset(servers: str, topic: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], DEADLINE_S)
    consumer.close()
    offset: int = found.offset
    return offset


def check_ends(servers: str, topic: str, make: Make) -> None:
    """A transaction is read whole or not at all, and its offsets with it."""
    client: Client = make(servers, topic)
    group = f"g.{topic}"
    for number, ends in enumerate((client.commit, client.abort, client.abort, client.commit)):
        client.begin()
        client.write(topic, *(f"{number}.{each}" for each in range(5)))
        client.send_offset(topic, group, 10 + number)
        ends()
        assert committed_offset(servers, topic, group) == (13 if number == 3 else 10)
    client.close()
    assert committed(servers, topic, 10) == [f"{number}.{each}" for number in (0, 3) for each in range(5)]


def check_fencing(servers: str, topic: str, make: Make) -> None:
    """A second producer of the id fences the first, and aborts its transaction."""
    first = make(servers, topic)
    first.begin()
    first.write(topic, "zombie")
    second = make(servers, topic)
    with pytest.raises(first.fenced) as refused:
        first.commit()
    assert not isinstance(first, Confluent) or refused.value.args[0].fatal()
    second.begin()
    second.write(topic, "heir")
    second.commit()
    second.close()
    with suppress(*first.fenced):
        first.close()
    assert committed(servers, topic, 1) == ["heir"]
