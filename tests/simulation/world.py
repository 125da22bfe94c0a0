"""Brokers and clients in virtual time: what the tests here play with."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from slow_store import SlowStore

from odradek.broker.lifecycle import Broker
from odradek.clients import Consumer, Producer
from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.config import BrokerConfig
from odradek.model import TopicPartition
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation, Survival

ADDRESS: Final = "broker:9092"
SESSION_TIMEOUT_S: Final = 6.0


class World:
    """Brokers over one metadata tree, and the clients that a test asks for, each on a host of its own.

    One broker is on the host `broker`; several are on `broker-0`, `broker-1`, … by their ids. One that is killed is
    registered until its session has run out, unless `noticed_at_once`, as by a tree on the same machine. One that is on
    other machines is `tree_s` away (see `SlowStore`).
    """

    def __init__(
        self,
        seed: int,
        config: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        noticed_at_once: bool = True,
        tree_s: float = 0.0,
    ) -> None:
        self.simulation = Simulation(seed)
        self.hosts = ["broker"] if brokers == 1 else [f"broker-{number}" for number in range(brokers)]
        self.servers = ",".join(f"{host}:9092" for host in self.hosts)
        self.tree = MemoryTree()
        self._config = dict(config or {})
        self._noticed_at_once = noticed_at_once
        self._tree_s = tree_s
        self._running: dict[int, tuple[Broker, MemoryStore]] = {}

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.simulation.clock.elapsed_s

    @property
    def running(self) -> dict[int, Broker]:
        """The brokers that run, by id."""
        return {number: broker for number, (broker, _) in self._running.items()}

    def store(self, number: int) -> MemoryStore:
        """The session of a broker that runs."""
        return self._running[number][1]

    async def start(self, number: int = 0) -> None:
        """Start a broker, over what its disk has."""
        host = self.hosts[number]
        own = {"broker.id": str(number), "listeners": f"PLAINTEXT://{host}:9092", "log.dirs": "/data"}
        store = self._begin_session(host)
        broker = Broker(BrokerConfig.parse({**own, **self._config}), self.simulation.runtime(host), store)
        try:
            await broker.start()
        except BaseException:
            await self._forget(store)
            self.simulation.kill(host)
            raise
        self._running[number] = broker, store

    def _begin_session(self, host: str) -> MemoryStore:
        if not self._tree_s:
            return MemoryStore(self.tree)
        chance = self.simulation.entropy(f"way of {host} to the tree at {self.now_s}")
        return SlowStore(self.tree, chance, self._tree_s)

    async def stop(self, number: int = 0) -> None:
        """Stop it cleanly."""
        broker, store = self._running.pop(number)
        await broker.stop()
        await store.close()

    async def kill(self, number: int = 0) -> None:
        """`kill -9`."""
        await self._end(number)
        self.simulation.kill(self.hosts[number])

    async def cut_power(self, survival: Survival = Survival.ANY, number: int = 0) -> None:
        """The machine under the broker goes off and on."""
        await self._end(number)
        self.simulation.cut_power(self.hosts[number], survival)

    async def _end(self, number: int) -> None:
        broker, store = self._running.pop(number)
        broker.kill()
        await self._forget(store)

    async def _forget(self, store: MemoryStore) -> None:
        if self._noticed_at_once:
            await store.close()
        else:
            session = store.session_id
            store.abandon()
            asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.tree.expire, session)

    def producer(self, host: str, **settings: Any) -> Producer:
        """A producer on `host`."""
        return Producer(self.servers, runtime=self.simulation.runtime(host), **settings)

    def consumer(self, host: str, *topics: str, **settings: Any) -> Consumer:
        """A consumer on `host`; it starts at the beginning."""
        given = {"auto_offset_reset": "earliest", **settings}
        return Consumer(*topics, bootstrap_servers=self.servers, runtime=self.simulation.runtime(host), **given)

    async def read(self, topic: str, partitions: int | Sequence[int]) -> dict[int, list[bytes]]:
        """All values that are in so many, or these, partitions of a topic by now, in the order of their offsets."""
        records = await self.read_records(topic, partitions)
        return {number: [record.value or b"" for record in some] for number, some in records.items()}

    async def read_records(self, topic: str, partitions: int | Sequence[int]) -> dict[int, list[ConsumerRecord]]:
        """The same, as records."""
        numbers = range(partitions) if isinstance(partitions, int) else partitions
        places = [TopicPartition(topic, number) for number in numbers]
        found: dict[int, list[ConsumerRecord]] = {number: [] for number in numbers}
        async with self.consumer("auditor") as consumer:
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            while any(len(found[place.partition]) < end for place, end in ends.items()):
                for record in await consumer.poll(1000):
                    assert record.offset == len(found[record.partition])
                    found[record.partition].append(record)
        return found

    def play(self, scenario: Callable[[Self], Coroutine[Any, Any, None]]) -> str:
        """Run `scenario` with every broker started before and stopped after it; returns the trace's digest."""

        async def main() -> None:
            await asyncio.gather(*(self.start(number) for number in range(len(self.hosts))))
            await scenario(self)
            for number in sorted(self._running):
                await self.stop(number)

        self.simulation.run(main())
        return self.simulation.trace.digest


class Member:
    """A consumer of a group on a host of its own, polling in a task; `async with` or `start` and `stop`."""

    def __init__(self, world: World, host: str, topic: str, group: str, **settings: Any) -> None:
        self.host = host
        self.read: list[bytes] = []
        self.consumer = world.consumer(host, topic, group_id=group, **settings)
        self._closing = AsyncExitStack()
        self._polling: asyncio.Task[None] | None = None

    @property
    def owned(self) -> set[int]:
        """Numbers of the partitions that it believes are its own."""
        return {place.partition for place in self.consumer.assignment()}

    async def start(self) -> Self:
        """Join."""
        await self._closing.enter_async_context(self.consumer)
        self._polling = asyncio.create_task(self._poll(), name=f"member {self.host}")
        return self

    async def stop(self) -> None:
        """Leave the group."""
        await self.fall_silent()
        await self._closing.aclose()

    async def fall_silent(self) -> None:
        """Poll no more."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
            self._polling = None

    async def _poll(self) -> None:
        while True:
            self.read += [record.value or b"" for record in await self.consumer.poll(1000)]


async def until(condition: Callable[[], bool], *, within_s: float = 120.0) -> None:
    """Let virtual time pass until `condition` holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def settled(members: list[Member], partitions: int) -> None:
    """Let time pass until each partition has one owner among `members` and none has two more than another."""

    def is_settled() -> bool:
        owned = [member.owned for member in members]
        sizes = [len(some) for some in owned]
        return (
            set().union(*owned) == set(range(partitions)) and sum(sizes) == partitions and max(sizes) - min(sizes) <= 1
        )

    await until(is_settled)
