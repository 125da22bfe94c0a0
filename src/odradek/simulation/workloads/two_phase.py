"""Applications that change a database and write to a topic, both or neither, by two-phase commit (KIP-939).

The database stores what an application decided, and the name of the prepared transaction. It survives the crashes of
the application, which happen at any await. After a crash, the application completes the transaction as the database
says. The promises:

- A consumer reads no record before the database has it, and none that the database never gets.
- Each record of the database is in the topic once, in the database's order.
- No prepared transaction stays open once the faults have ended.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from odradek.clients import Producer
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.old_epochs import maybe_use_up_epochs
from odradek.simulation.workloads.transactions import repeated, stable
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "ledger"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(2)]


class Database:
    """A database outside the cluster. Its commits take time, and each happens as a whole or not at all."""

    def __init__(self, world: World, host: str) -> None:
        self.rows: dict[TopicPartition, list[bytes]] = {place: [] for place in _PLACES}
        self.state: str | None = None
        """The name of the prepared transaction of the last commit."""
        self._chance = world.simulation.entropy(f"database of {host}")

    async def commit(self, rows: Sequence[tuple[TopicPartition, bytes]], state: str) -> None:
        """Store rows and the name of the transaction that has them as records."""
        await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.5)))
        for place, row in rows:
            self.rows[place].append(row)
        self.state = state
        await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.5)))


class Application:
    """A process on its own host that repeats transactions, crashes, and starts again."""

    def __init__(self, world: World, host: str) -> None:
        self.host = host
        self.is_calm = False
        """Whether the application crashes no more, and ends after a committed transaction."""
        self.database = Database(world, host)
        self.errors: list[str] = []
        self._world = world
        self._chance = world.simulation.entropy(host)
        self._sent = 0

    async def live(self) -> None:
        """Run one process after the other, until it is calm and has committed."""
        while not await self._one_life():  # noqa: ASYNC110 - no polling: each life runs transactions
            await asyncio.sleep(self._chance.choice((0.1, 1.0)))

    async def _one_life(self) -> bool:
        """Run one process; return whether the application is done."""
        producer = self._world.producer(
            self.host, transactional_id=self.host, transaction_two_phase_commit_enable=True, max_block_ms=60_000,
            delivery_timeout_ms=30_000, **CLIENTS,
        )  # fmt: skip
        work = self._world.spawn(self.host, self._work(producer))
        life_s = None if self.is_calm else self._chance.choice((0.1, 1.0, 20.0)) * self._chance.random()
        try:
            await asyncio.wait([work], timeout=life_s)
            return work.done() and work.result()
        except (OdradekError, TimeoutError) as error:
            self.errors.append(f"{self._world.now_s:.2f} {error}")
            return False
        finally:
            work.cancel()
            await asyncio.wait([work])
            self._world.simulation.kill(self.host)
            await producer.close(timeout_ms=0)

    async def _work(self, producer: Producer) -> bool:
        await producer.start()
        await repeated(partial(producer.complete, self.database.state))
        while True:
            await self._transact(producer)
            if self.is_calm:
                return True
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 3.0)))

    async def _transact(self, producer: Producer) -> None:
        await producer.begin_transaction()
        rows = []
        for _ in range(self._chance.randrange(1, 4)):
            place, row = self._chance.choice(_PLACES), b"%s-%d" % (self.host.encode(), self._sent)
            self._sent += 1
            rows.append((place, row))
            delivery = await producer.send(place.topic, row, partition=place.partition)
            delivery.add_done_callback(lambda done: done.cancelled() or done.exception())
        state = await producer.prepare()
        if self.is_calm or self._chance.random() < 0.75:
            await self.database.commit(rows, str(state))
        await repeated(partial(producer.complete, self.database.state))


class TwoPhase(Workload):
    """One or two applications with their databases, and a reader of committed records."""

    config: ClassVar[Mapping[str, str]] = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    clients: ClassVar[Sequence[str]] = ("application-0", "ledger-reader")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        count = world.simulation.entropy("two-phase commit").choice((1, 2))
        self._applications = [Application(world, f"application-{number}") for number in range(count)]
        self._read: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self._lives: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the clients, and return when records have been read."""
        await create_topic(self.world, TOPIC, len(_PLACES))
        await maybe_use_up_epochs(self.world, [each.host for each in self._applications])
        self._lives = [self.world.spawn(each.host, each.live()) for each in self._applications]
        self._reading = self.world.spawn("ledger-reader", self._read_all())
        await until(self._has_read, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Let every application commit once more, read all, and compare the topic with the databases."""
        assert self._reading is not None
        for each in self._applications:
            each.is_calm = True
        done, late = await asyncio.wait(self._lives, timeout=PATIENCE_S)
        raise_failures(done)
        if late:
            stuck = {each.host: each.errors[-3:] for each in self._applications}
            return [f"applications with two-phase commit do not commit: {stuck}"]
        await stable(self.world)
        with suppress(TimeoutError):  # `_differences` names missing records
            await until(self._has_read_all, within_s=PATIENCE_S, each_s=0.1)
        await cancel(self._reading)
        return [sentence for place in _PLACES for sentence in self._differences(place)]

    def _has_read(self) -> bool:
        self._raise_failures()
        return bool(self._read)

    def _has_read_all(self) -> bool:
        self._raise_failures()
        return all(self._rows(place) <= Counter(self._read[place]) for place in _PLACES)

    def _raise_failures(self) -> None:
        assert self._reading is not None
        raise_failures([*self._lives, self._reading])

    def _rows(self, place: TopicPartition) -> Counter[bytes]:
        return Counter(row for each in self._applications for row in each.database.rows[place])

    def _differences(self, place: TopicPartition) -> list[str]:
        found = []
        for each in self._applications:
            decided = each.database.rows[place]
            read = [value for value in self._read[place] if value.startswith(each.host.encode())]
            if read != decided:
                lost, doubled = sorted(set(decided) - set(read)), [v for v, count in Counter(read).items() if count > 1]
                found.append(f"{place} lacks {lost} of the database of {each.host}, has {doubled} twice, or reorders")
        return found

    async def _read_all(self) -> None:
        settings: Any = {"isolation_level": "read_committed", **READERS}
        async with self.world.consumer("ledger-reader", **settings) as consumer:
            consumer.assign(_PLACES)
            while True:
                for record in await consumer.poll(1_000):
                    place, value = TopicPartition(record.topic, record.partition), record.value or b""
                    if not self._rows(place)[value]:
                        raise BrokenPromiseError(f"{place} has {value!r}, which no database has decided to commit")
                    self._read[place].append(value)
