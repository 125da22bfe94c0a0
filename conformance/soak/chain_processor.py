"""A process of a chain: it reads a topic in a group and writes what it reads to another, in transactions, until killed.

    python chain_processor.py odradek|confluent SERVERS SOURCE TARGET TRANSACTIONAL_ID

The group's name is the target's. A transaction that is aborted is read
again from the committed offsets; any other error ends the process, as an application that a supervisor starts again.
"""

import asyncio
import signal
import sys
from typing import Any, Final

import confluent_kafka

from odradek.clients import Consumer, Producer, TransactionAbortedError

RECORDS: Final = 20
"""Of a transaction, at most."""
TIMEOUT_S: Final = 20.0
TRANSACTION_TIMEOUT_MS: Final = 10_000
SESSION_MS: Final = 2_000


async def odradek(servers: str, source: str, target: str, transactional_id: str) -> None:
    """Run with Odradek's clients."""
    consumer = Consumer(
        source,
        bootstrap_servers=servers,
        group_id=target,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        max_poll_records=RECORDS,
    )
    producer = Producer(
        servers, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, acks="all"
    )
    async with consumer, producer:
        while True:
            records = await consumer.poll()
            try:
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value, partition=record.partition)
                    offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
                    await producer.send_offsets(offsets, consumer.group_metadata())
            except TransactionAbortedError as error:
                print(error, file=sys.stderr)
                for record in reversed(records):
                    if (record.topic, record.partition) in consumer.assignment():
                        consumer.seek((record.topic, record.partition), record.offset)


def confluent(servers: str, source: str, target: str, transactional_id: str) -> None:
    """Run with confluent-kafka's clients."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range",
            "reconnect.backoff.max.ms": 500,
        }
    )
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            "linger.ms": 0,
        }
    )
    consumer.subscribe([source])
    producer.init_transactions(TIMEOUT_S)
    while True:
        messages = consumer.consume(RECORDS, 0.2)
        for message in messages:
            # librdkafka 2.16 stops reading a partition after a failed OffsetFetch, such as one on a lost connection.
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
        if messages:
            _transact(producer, consumer, messages, target)


def _transact(producer: Any, consumer: Any, messages: Any, target: str) -> None:
    """Write the messages and their offsets; after an abort, seek to the first of each partition."""
    next_offsets = {(each.topic(), each.partition()): each.offset() + 1 for each in messages}
    try:
        producer.begin_transaction()
        for each in messages:
            producer.produce(target, each.value(), partition=each.partition())
        places = [confluent_kafka.TopicPartition(*place, offset) for place, offset in next_offsets.items()]
        # librdkafka up to 2.14 waits without end for a group coordinator that has died: the process is started again.
        signal.alarm(10)
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
        signal.alarm(0)
        _commit(producer)
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        signal.alarm(0)
        print(error, file=sys.stderr)
        producer.abort_transaction(TIMEOUT_S)
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        for each in reversed(messages):
            if (each.topic(), each.partition()) in assigned:
                consumer.seek(confluent_kafka.TopicPartition(each.topic(), each.partition(), each.offset()))


def _commit(producer: Any) -> None:
    try:
        producer.commit_transaction(TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        if not error.args[0].retriable():
            raise
        producer.commit_transaction(TIMEOUT_S)


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "odradek":
        asyncio.run(odradek(*arguments))
    else:
        confluent(*arguments)
