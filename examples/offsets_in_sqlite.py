"""Stores results and offsets in one SQLite transaction, so that each message has its effect exactly once.

    odradek produce payments --lines FILE        lines such as: alice 250
    python -m examples.offsets_in_sqlite localhost:9092 payments balances.sqlite

A transaction adds the payments of one poll to the balances and stores the offset after them. If a process dies, both
are stored or neither; the next process starts at the stored offset. Several processes may share the group and the
database: a record below the stored offset was already stored by another member, and is skipped. If the log no longer
has the stored offset, because of retention or because the topic was created again, `poll` raises an error
(`auto_offset_reset="none"`).
"""

import asyncio
import sqlite3
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

from odradek.clients import Consumer, ConsumerRecord
from odradek.model import TopicPartition

TABLES = (
    "CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, cents INTEGER)",
    "CREATE TABLE IF NOT EXISTS offsets (topic, partition, next_offset INTEGER, PRIMARY KEY (topic, partition))",
)
MOVE_OFFSET = (
    "INSERT INTO offsets VALUES (?, ?, ?) "
    "ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset WHERE next_offset < excluded.next_offset"
)
ADD_PAYMENT = "INSERT INTO balances VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents"


def open_database(path: str | Path, connection: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Open the database and create its tables. Only `store` begins and ends transactions."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30, factory=connection)
    for statement in TABLES:
        database.execute(statement)
    return database


def store(database: sqlite3.Connection, records: Sequence[ConsumerRecord]) -> None:
    """Add payments to the balances and store the offsets after them, all or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for record in records:
            moved = database.execute(MOVE_OFFSET, (record.topic, record.partition, record.offset + 1))
            if moved.rowcount:
                account, cents = (record.value or b"").split()
                database.execute(ADD_PAYMENT, (account.decode(), int(cents)))
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def seek_to_stored(consumer: Consumer, database: sqlite3.Connection, partitions: Collection[TopicPartition]) -> None:
    """Seek to the stored offsets of newly assigned partitions, or to their beginning."""
    for partition in partitions:
        stored = "SELECT next_offset FROM offsets WHERE topic = ? AND partition = ?"
        row = database.execute(stored, partition).fetchone()
        if row is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, row[0])


async def consume(consumer: Consumer, topic: str, database: sqlite3.Connection) -> None:
    """Join the group of `consumer` and store the records of `topic`, for ever."""
    consumer.subscribe(
        [topic], on_partitions_assigned=lambda partitions: seek_to_stored(consumer, database, partitions)
    )
    while True:
        store(database, await consumer.poll())


async def main(servers: str, topic: str, path: str, group: str = "balances") -> None:
    """Run one member of the group until Ctrl-C."""
    with closing(open_database(path)) as database:
        async with Consumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="none"
        ) as consumer:
            await consume(consumer, topic, database)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
