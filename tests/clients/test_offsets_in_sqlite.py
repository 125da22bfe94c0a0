"""SPEC 7's example: results and offsets in the user's own database, killed between any two statements (M8)."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from examples.offsets_in_sqlite import consume, open_database, seek_to_stored, store
from odradek.clients import ConsumerRecord, Producer
from odradek.model import KafkaError
from odradek.simulation.world import World, until
from odradek.testing import eventually
from tests.world.sampling import crash_points

pytestmark = pytest.mark.long

PAYMENTS = [(f"account-{number % 3}", 1 << number) for number in range(12)]
"""Each amount is another power of two, so that a sum shows which payments are in it, and how often."""
BALANCES = {
    f"account-{number}": sum(cents for name, cents in PAYMENTS if name == f"account-{number}") for number in range(3)
}
STATEMENTS = 2 + 2 * (2 + 2 * len(PAYMENTS))
"""More statements than one member executes, however its polls divide the records."""


class KilledError(BaseException):
    """The process is dead: nothing of it runs any more, its `except` clauses included."""


class Killing(sqlite3.Connection):
    """A connection that dies instead of executing statement `dies_at`, and stays dead."""

    dies_at = sys.maxsize
    count = 0

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        if self.count >= self.dies_at:
            raise KilledError
        self.count += 1
        return super().execute(*statement)


def balances(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT account, cents FROM balances"))


def is_complete(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if "offsets" not in tables:
            return False
        return sum(each for (each,) in database.execute("SELECT next_offset FROM offsets")) == len(PAYMENTS)


async def pay(world: World) -> None:
    async with world.producer("bank") as producer:
        for number, (account, cents) in enumerate(PAYMENTS):
            await producer.send("payments", f"{account} {cents}".encode(), partition=number % 2)


class Process:
    """A member on a host of its own; it dies with its connection to the database."""

    def __init__(self, world: World, host: str, path: Path, dies_at: int = sys.maxsize) -> None:
        self.world = world
        self.host = host
        database = open_database(path, Killing)
        assert isinstance(database, Killing)
        self.database = database
        self.die_at(dies_at)
        settings = {"enable_auto_commit": False, "auto_offset_reset": "none", "max_poll_records": 5}
        self.consumer = world.consumer(host, group_id="balances", session_timeout_ms=10_000, **settings)
        self.task = asyncio.create_task(self._run(), name=host)

    def die_at(self, number: int) -> None:
        """Let it die instead of executing the statement after the next `number`."""
        self.database.dies_at = self.database.count + number

    async def _run(self) -> bool:
        """Return whether it was killed."""
        try:
            await self.consumer.start()
            await consume(self.consumer, "payments", self.database)
        except KilledError:
            self.world.simulation.kill(self.host)
            return True
        finally:
            self.database.close()  # what is not committed is rolled back, as at a process's end
        return False

    async def end(self) -> bool:
        """Stop it unless it was killed; return whether it was."""
        if not self.task.done():
            self.task.cancel()
        (killed,) = await asyncio.gather(self.task, return_exceptions=True)
        await self.consumer.close()
        self.database.close()  # a task that is canceled before it begins has no end
        return killed is True


def new_world(seed: int) -> World:
    return World(seed, {"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"})


def test_a_process_killed_before_any_statement_neither_loses_nor_repeats_a_payment(seed: int, tmp_path: Path) -> None:
    """M8: the crash matrix; the next process continues from the stored offsets. A run tries a third of them."""
    killed = {
        number - 1: kill_and_continue(seed, tmp_path / f"{number}.sqlite", number - 1)
        for number in crash_points(STATEMENTS, seed, every=3)
    }
    survivors = next(number for number, was_killed in killed.items() if not was_killed)
    assert survivors > 2 * len(PAYMENTS)
    assert not any(was_killed for number, was_killed in killed.items() if number > survivors)


def kill_and_continue(seed: int, path: Path, dies_at: int) -> bool:
    killed = []

    async def scene(world: World) -> None:
        await pay(world)
        first = Process(world, "first", path, dies_at)
        await until(lambda: first.task.done() or is_complete(path))
        killed.append(await first.end())
        second = Process(world, "second", path)
        await until(lambda: is_complete(path))
        await second.end()

    new_world(seed).play(scene)
    assert balances(path) == BALANCES, f"killed before statement {dies_at}"
    return killed[0]


@pytest.mark.parametrize("dies_at", [1, 4, 9, 10, 12])
def test_the_other_member_takes_over_from_one_that_was_killed(seed: int, tmp_path: Path, dies_at: int) -> None:
    """M8: both are members of the group and share the database; the dead one's session expires."""
    path = tmp_path / "balances.sqlite"

    async def scene(world: World) -> None:
        both = [Process(world, "first", path), Process(world, "second", path)]
        await until(lambda: all(len(each.consumer.assignment()) == 1 for each in both))
        both[0].die_at(dies_at)
        await pay(world)
        await until(lambda: is_complete(path))
        assert [await each.end() for each in both] == [True, False]

    new_world(seed).play(scene)
    assert balances(path) == BALANCES


def test_a_member_that_lost_its_partitions_cannot_repeat_their_payments(seed: int, tmp_path: Path) -> None:
    """M8: it polled before the rebalance and stores after it; the offsets in the database are ahead of its records."""
    path = tmp_path / "balances.sqlite"

    async def scene(world: World) -> None:
        await pay(world)
        database = open_database(path)
        slow = world.consumer("slow", group_id="balances", enable_auto_commit=False, max_poll_interval_ms=20_000)
        async with slow:
            slow.subscribe(["payments"], on_partitions_assigned=lambda some: seek_to_stored(slow, database, some))
            late = await slow.poll()
            assert late
            quick = Process(world, "quick", path)
            await until(lambda: is_complete(path))
            store(database, late)
            await quick.end()
        database.close()

    new_world(seed).play(scene)
    assert balances(path) == BALANCES


def test_a_failed_transaction_is_rolled_back(tmp_path: Path) -> None:
    """M8: a payment that is not understood is no reason to store the offsets of those before it."""

    def record(offset: int, value: bytes) -> ConsumerRecord:
        return ConsumerRecord("payments", 0, offset, 0, None, value, (), 0)

    with closing(open_database(tmp_path / "b.sqlite")) as database:
        store(database, [record(0, b"alice 5")])
        with pytest.raises(ValueError, match="not enough values"):
            store(database, [record(1, b"alice 7"), record(2, b"?")])
        assert not database.in_transaction
        assert database.execute("SELECT next_offset FROM offsets").fetchall() == [(1,)]
        assert balances(tmp_path / "b.sqlite") == {"alice": 5}


def test_a_topic_that_was_created_again_is_an_error_and_its_records_are_not_passed_over(
    seed: int, tmp_path: Path
) -> None:
    """M8: the stored offsets are beyond the end of the new topic."""
    path = tmp_path / "balances.sqlite"

    async def scene(world: World) -> None:
        await pay(world)
        first = Process(world, "first", path)
        await until(lambda: is_complete(path))
        await first.end()
        async with world.admin() as admin:
            await admin.delete_topics(["payments"])
            await admin.create_topic("payments")
        async with world.producer("bank") as producer:
            await producer.send("payments", b"account-0 1")
        second = Process(world, "second", path)
        with pytest.raises(KafkaError, match=r"payments-[01]: the log does not hold offset 6"):
            await second.task
        await second.end()

    new_world(seed).play(scene)
    assert balances(path) == BALANCES


# ---- a real process -------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, signal, sqlite3, sys
from examples import offsets_in_sqlite as example

moment, start, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Killing(sqlite3.Connection):
    count = 0
    def execute(self, *statement):
        Killing.count += statement[0].startswith(start)
        if moment == "before" and Killing.count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        result = super().execute(*statement)
        if moment == "after" and Killing.count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

example.open_database.__defaults__ = (Killing,)
asyncio.run(example.main(*sys.argv[4:]))
"""
"""A member that kills itself before or after the n-th statement that starts with given words."""


@pytest.fixture
def run() -> Iterator[Any]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, *arguments], cwd=Path(__file__).parents[2])
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_real_process_killed_with_kill_9_neither_loses_nor_repeats_a_payment(
    kafka: Any, tmp_path: Path, run: Any
) -> None:
    """M8: in the middle of a poll's payments, before its commit, and right after it."""
    path = tmp_path / "balances.sqlite"
    kafka.create_topic("payments", partitions=2)

    async def write() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            for number, (account, cents) in enumerate(PAYMENTS):
                await producer.send("payments", f"{account} {cents}".encode(), partition=number % 2)

    asyncio.run(write())
    moments = [("before", "INSERT INTO balances", 3), ("before", "COMMIT", 1), ("after", "COMMIT", 1)]
    dead = [kill_process(run, kafka.bootstrap_servers, path, *moment) for moment in moments]
    assert dead == [-signal.SIGKILL] * 3
    process = run("-m", "examples.offsets_in_sqlite", kafka.bootstrap_servers, "payments", str(path), "last")
    eventually(lambda: is_complete(path), within_s=60)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert balances(path) == BALANCES


def kill_process(run: Any, servers: str, path: Path, moment: str, statement: str, number: int) -> int:
    """Run a member until it kills itself, in a group of its own, because the dead stay members for a while."""
    arguments = (moment, statement, str(number), servers, "payments", str(path), f"group {moment} {statement}")
    code: int = run("-c", KILLED, *arguments).wait(60)
    return code
