"""The examples of transactions: from topic to topic, and a database and a topic together, with crashes."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from examples.consume_process_produce import process
from examples.database_and_topic import Database, pay, recover
from odradek.clients import Producer
from odradek.simulation.world import World
from tests.world.sampling import crash_points
from tests.world.scenes import in_world

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
}
LINES = [f"account-{number % 2} {number}" for number in range(3)]
STEPS = 3 + len(LINES) * 7 + 2
"""More steps than a run without a crash has."""


async def committed(world: World, topic: str) -> list[bytes]:
    """Return the values of partition 0 that a `read_committed` consumer sees."""
    async with world.consumer("auditor", isolation_level="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        (end,) = (await consumer.end_offsets([(topic, 0)])).values()
        found = []
        while await consumer.position((topic, 0)) < end:
            found += [record.value or b"" for record in await consumer.poll(1_000)]
        return found


class KilledError(BaseException):
    """The process is dead: nothing of it runs any more."""


class Steps:
    """Counts the steps of a process, and kills it before step `dies_at`."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at = dies_at
        self.count = 0

    def step(self) -> None:
        if self.count >= self.dies_at:
            raise KilledError
        self.count += 1

    def of_producer(self, producer: Producer) -> Producer:
        for name in ("begin_transaction", "send", "prepare", "complete"):
            setattr(producer, name, self._counted(getattr(producer, name)))
        return producer

    def _counted(self, call: Any) -> Any:
        async def counted(*arguments: Any) -> Any:
            self.step()
            return await call(*arguments)

        return counted


class KillableDatabase(Database):
    """A database of a process that may die before each statement and each commit."""

    def __init__(self, path: Path, steps: Steps) -> None:
        super().__init__(sqlite3.connect(path), sqlite3.paramstyle)
        self._steps = steps

    def execute(self, statement: str, *parameters: object) -> Any:
        self._steps.step()
        return super().execute(statement, *parameters)

    def commit(self) -> None:
        self._steps.step()
        super().commit()


async def run(world: World, host: str, path: Path, dies_at: int) -> bool:
    """Pay everything; return whether the process was killed first."""
    steps = Steps(dies_at)
    database = KillableDatabase(path, steps)
    producer = world.producer(host, transactional_id="shop", transaction_two_phase_commit_enable=True)
    await producer.start()
    try:
        steps.of_producer(producer)
        for number in range(await recover(producer, database, "shop"), len(LINES)):
            await pay(producer, database, "shop", "payments", number, LINES[number])
    except KilledError:
        world.simulation.kill(host)
        return True
    finally:
        database.connection.close()  # what is not committed is rolled back, as at a process's end
        await producer.close(timeout_ms=0)
    return False


def test_a_process_killed_before_any_statement_leaves_database_and_topic_equal(seed: int, tmp_path: Path) -> None:
    """Each payment is in both, once, whatever step the first process died before. A run tries a third of them."""
    killed = []

    async def crash(world: World, dies_at: int) -> None:
        path = tmp_path / f"{dies_at}.sqlite"
        killed.append(await run(world, "first", path, dies_at))
        assert not await run(world, "second", path, 1_000)
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT number, account, cents FROM payments ORDER BY number").fetchall()
        assert [f"{account} {cents}" for _, account, cents in rows] == LINES, f"killed before step {dies_at}"
        assert await committed(world, "payments") == [line.encode() for line in LINES], f"killed before step {dies_at}"

    for number in crash_points(STEPS, seed, every=3):
        World(seed, CONFIG).play(lambda world, dies_at=number - 1: crash(world, dies_at))  # type: ignore[misc]
    assert any(killed)


@pytest.mark.parametrize("paramstyle", ["format", "pyformat"])
def test_the_database_needs_nothing_but_the_db_api(paramstyle: str) -> None:
    """PostgreSQL's drivers take `%s`."""
    executed: list[tuple[str, tuple[object, ...]]] = []

    class Connection:
        def cursor(self) -> Any:
            return self

        def execute(self, statement: str, parameters: tuple[object, ...]) -> None:
            executed.append((statement, parameters))

    Database(Connection(), paramstyle).execute("INSERT INTO t VALUES (?, ?)", 1, "a")
    assert executed == [("INSERT INTO t VALUES (%s, %s)", (1, "a"))]


@in_world(CONFIG)
async def test_each_line_is_processed_once_though_a_processor_is_killed(world: World) -> None:
    async with world.producer("source") as source:
        for number in range(6):
            await source.send("lines", b"a%d b%d" % (number, number))

    async def processor(host: str) -> None:
        settings: dict[str, Any] = {"enable_auto_commit": False, "max_poll_records": 2}
        consumer = world.consumer(host, "lines", group_id="words", session_timeout_ms=6_000, **settings)
        async with consumer, world.producer(host, transactional_id="words-1") as producer:
            while True:
                await process(consumer, producer, "words")

    first = asyncio.create_task(processor("first"))
    while not await committed(world, "words"):
        assert not first.done(), first
        await asyncio.sleep(0.05)
    world.simulation.kill("first")
    second = asyncio.create_task(processor("second"))
    while len(await committed(world, "words")) < 12:
        assert not second.done(), second
        await asyncio.sleep(0.5)
    for each in (first, second):
        each.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    words = [word for number in range(6) for word in (b"a%d" % number, b"b%d" % number)]
    assert await committed(world, "words") == words
