"""Existing clients behind the same two calls: write these messages, read so many.

A client whose limits keep it from a message says so in `can_write`; what it cannot show is left out of `shown`, which
is applied to both sides of a comparison.
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S: Final = 30.0

BROKER_OPTIONS: Final = {
    "log.retention.ms": "-1",  # the messages of these tests carry old timestamps
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}
"""The broker configuration of these tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to write and to read back."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None


class Client:
    """One client library or program."""

    name: str

    def can_write(self, message: Message) -> bool:
        """Whether the client has a way to write this."""
        return True

    def shown(self, message: Message) -> Message:
        """The message without what the client cannot write or show."""
        return message

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        """Write, in order, each to its partition; return when all are acknowledged."""
        raise AssertionError

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        """`count` messages from the start of all partitions, by partition and offset."""
        raise AssertionError


class Confluent(Client):
    """confluent-kafka, which is librdkafka."""

    name = "confluent-kafka"

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20, "enable.idempotence": True}
        )
        failures: list[Any] = []
        for message in messages:
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                partition=message.partition,
                timestamp=message.timestamp_ms,
                headers=list(message.headers),
                on_delivery=lambda error, _: failures.extend([error] if error else []),
            )
        assert producer.flush(DEADLINE_S) == 0
        assert not failures

    def create(self, servers: str, topic: str, partitions: int) -> None:
        """Create a topic."""
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
        )
        first = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, number, first) for number in range(partitions)])
        found: list[Any] = []
        while len(found) < count and (polled := consumer.consume(count - len(found), DEADLINE_S)):
            found += polled
        consumer.close()
        assert not [message.error() for message in found if message.error()]
        return [
            Message(
                partition=message.partition(),
                key=message.key(),
                value=message.value(),
                headers=tuple(message.headers() or ()),
                timestamp_ms=message.timestamp()[1],
            )
            for message in sorted(found, key=lambda message: (message.partition(), message.offset()))
        ]


class KafkaPython(Client):
    """kafka-python, which writes no null headers."""

    name = "kafka-python"

    def can_write(self, message: Message) -> bool:
        return all(value is not None for _, value in message.headers)

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=20, acks="all"
        )
        futures = [
            producer.send(
                topic,
                key=message.key,
                value=message.value,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            for message in messages
        ]
        producer.flush(DEADLINE_S)
        assert [future.get(DEADLINE_S).partition for future in futures] == [message.partition for message in messages]
        producer.close()

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None, consumer_timeout_ms=DEADLINE_S * 1000)
        where = [kafka.TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(where)
        consumer.seek_to_beginning(*where)
        found = [record for _, record in zip(range(count), consumer, strict=False)]
        consumer.close()
        return [_from_kafka_python(record) for record in sorted(found, key=lambda one: (one.partition, one.offset))]


class Aiokafka(Client):
    """aiokafka, on an event loop of its own."""

    name = "aiokafka"

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        asyncio.run(self._write(servers, topic, messages, codec))

    async def _write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            enable_idempotence=True,
        ) as producer:
            futures = [
                await producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        return asyncio.run(self._read(servers, topic, partitions, count))

    async def _read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        found: list[Any] = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            where = [aiokafka.TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(where)
            await consumer.seek_to_beginning(*where)
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < count:
                    found.append(await consumer.getone())
        return [_from_kafka_python(record) for record in sorted(found, key=lambda one: (one.partition, one.offset))]


class Kcat(Client):
    """kcat: a message a call, since only then it has headers and any bytes. It writes no times and no empty values."""

    name = "kcat"

    def can_write(self, message: Message) -> bool:
        text = [message.key or b"", *(value or b"\0" for _, value in message.headers)]
        return bool(message.value) and all(part.isascii() and b"\0" not in part for part in text)

    def shown(self, message: Message) -> Message:
        headers = tuple((name, (b"NULL" if value is None else value)) for name, value in message.headers)
        return replace(message, timestamp_ms=None, headers=headers)

    def write(self, servers: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        for message in messages:
            command = ["kcat", "-P", "-b", servers, "-t", topic, "-p", str(message.partition), "-z", codec]
            if message.key is not None:
                command += ["-k", message.key.decode()]
            for name, value in message.headers:
                assert value is not None, "kcat writes no header without a value"
                command += ["-H", f"{name}={value.decode()}"]
            with tempfile.NamedTemporaryFile() as file:
                file.write(message.value or b"")
                file.flush()
                subprocess.run([*command, file.name], check=True, timeout=DEADLINE_S)

    def read(self, servers: str, topic: str, partitions: int, count: int) -> list[Message]:
        command = ["kcat", "-C", "-q", "-b", servers, "-t", topic, "-o", "beginning", "-e", "-X", "check.crcs=true"]
        output = subprocess.run(
            [*command, "-f", r"%p %o %K %S %h\n%k%s\n"], check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE
        ).stdout
        found: list[tuple[int, Message]] = []
        while output:
            line, _, output = output.partition(b"\n")
            partition, offset, key_size, value_size, headers = line.split(b" ", 4)
            key, output = _take(output, int(key_size))
            value, output = _take(output, int(value_size))
            assert output[:1] == b"\n"
            output = output[1:]
            message = Message(
                partition=int(partition), key=key, value=value, headers=_split_headers(headers), timestamp_ms=None
            )
            found.append((int(offset), message))
        return [message for _, message in sorted(found, key=lambda one: (one[1].partition, one[0]))]


def _from_kafka_python(record: Any) -> Message:
    return Message(
        partition=record.partition,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
    )


def _take(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, data) if size < 0 else (data[:size], data[size:])


def _split_headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return tuple((name.decode(), value) for name, _, value in pairs)


def batches_of(data_dir: Path, topic: str, partition: int) -> list[BatchHeader]:
    """The headers of the record batches in a stopped or running broker's first segment of a partition."""
    segment = data_dir / f"{topic}-{partition}" / f"{0:020}.log"
    return [header for _, header in iterate_batches(segment.read_bytes())]


CLIENTS: Final = (Confluent(), KafkaPython(), Aiokafka(), Kcat())
