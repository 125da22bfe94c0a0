"""Reads a topic and writes another, so that each record has its effect exactly once.

    python -m examples.consume_process_produce localhost:9092 lines words

A transaction has the records that one poll leads to, and the offsets after it. If a process dies, both are committed or
neither, and the next process starts at the committed offsets. Consumers of the second topic read with
`isolation_level="read_committed"`.
"""

import asyncio
import sys
from collections.abc import Sequence

from odradek.clients import Consumer, ConsumerRecord, Producer, TransactionAbortedError
from odradek.model import TopicPartition


def words(record: ConsumerRecord) -> list[bytes]:
    """Return the values that a record leads to: its words."""
    return (record.value or b"").split()


async def process(consumer: Consumer, producer: Producer, topic: str) -> None:
    """Process the records of one poll in one transaction."""
    records = await consumer.poll()
    try:
        async with producer.transaction():
            for record in records:
                for value in words(record):
                    await producer.send(topic, value, record.key)
            offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
            await producer.send_offsets(offsets, consumer.group_metadata())
    except TransactionAbortedError as error:
        print(error, file=sys.stderr)
        rewind(consumer, records)


def rewind(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Read `records` again, as far as their partitions still belong to this member."""
    for record in reversed(records):
        if (record.topic, record.partition) in consumer.assignment():
            consumer.seek((record.topic, record.partition), record.offset)


async def main(servers: str, source: str, target: str, number: str = "1") -> None:
    """Run one member of the group until Ctrl-C; each member has a `number`, and so a transactional id of its own."""
    consumer = Consumer(
        source,
        bootstrap_servers=servers,
        group_id=target,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    async with consumer, Producer(servers, transactional_id=f"{target}-{number}") as producer:
        while True:
            await process(consumer, producer, target)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
