"""Changes a database and writes to a topic, both or neither, with two-phase commit (KIP-939).

    python -m examples.database_and_topic localhost:9092 payments shop.sqlite < payments.txt        lines: alice 250

After a crash, the same command goes on with the payments that are not stored.
`prepare` makes the records durable and returns the name of their transaction. The name is stored in the database's own
transaction, whose commit decides: after a crash, `complete` commits the records if their name is stored, else it aborts
them. `Database` needs only a DB-API connection (PEP 249): for PostgreSQL, it is
`Database(psycopg.connect(…), psycopg.paramstyle)`. The brokers need `transaction.two.phase.commit.enable=true`.
"""

import asyncio
import sqlite3
import sys
from typing import Any, Final

from odradek.clients import Producer

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS payments (number INTEGER PRIMARY KEY, account TEXT, cents INTEGER)",
    "CREATE TABLE IF NOT EXISTS prepared_transactions (transactional_id VARCHAR(200) PRIMARY KEY, state TEXT)",
)
STORE_STATE: Final = (
    "INSERT INTO prepared_transactions VALUES (?, ?) "
    "ON CONFLICT (transactional_id) DO UPDATE SET state = excluded.state"
)
MARKS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Database:
    """A DB-API connection whose transactions begin by themselves; statements have `?` for each parameter."""

    def __init__(self, connection: Any, paramstyle: str) -> None:
        self.connection = connection
        self._mark = MARKS[paramstyle]

    def execute(self, statement: str, *parameters: object) -> Any:
        """Execute a statement; return its cursor."""
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("?", self._mark), parameters)
        return cursor

    def commit(self) -> None:
        """Commit the transaction."""
        self.connection.commit()


async def pay(producer: Producer, database: Database, name: str, topic: str, number: int, line: str) -> None:
    """Store a payment and send it. `name` is the producer's transactional id."""
    account, cents = line.split()
    await producer.begin_transaction()
    await producer.send(topic, line.encode(), b"%d" % number)
    state = await producer.prepare()
    database.execute("INSERT INTO payments VALUES (?, ?, ?)", number, account, int(cents))
    database.execute(STORE_STATE, name, str(state))
    database.commit()
    await producer.complete(state)


async def recover(producer: Producer, database: Database, name: str) -> int:
    """End the transaction that a crash has left; return the number of payments. Needed after each start."""
    for statement in TABLES:
        database.execute(statement)
    row = database.execute("SELECT state FROM prepared_transactions WHERE transactional_id = ?", name).fetchone()
    await producer.complete(row[0] if row else None)
    (count,) = database.execute("SELECT COUNT(*) FROM payments").fetchone()
    database.commit()
    return int(count)


async def main(servers: str, topic: str, path: str) -> None:
    """Pay what the lines of standard input say."""
    database = Database(sqlite3.connect(path), sqlite3.paramstyle)
    async with Producer(servers, transactional_id=path, transaction_two_phase_commit_enable=True) as producer:
        stored = await recover(producer, database, path)
        for number, line in enumerate(sys.stdin.read().splitlines()):
            if number >= stored:
                await pay(producer, database, path, topic, number, line)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
