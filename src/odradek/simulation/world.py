"""Simulated brokers and clients in virtual time, on one in-memory metadata tree: the base of most system tests.

```python
async def scene(world: World) -> None:
    client = await world.client()
    await client.create_topic("t")

World(7, {"num.partitions": "3"}, brokers=3).play(scene)
```
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self, TypeVar

from odradek.broker.lifecycle import Broker
from odradek.broker.replication.partition import Partition
from odradek.broker.security.admission import Admission
from odradek.clients import Admin, Consumer, Producer
from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.config.broker import BrokerConfig
from odradek.config.properties import property_texts
from odradek.metadata.new_topic import NewTopic
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.runtime import Runtime
from odradek.simulation.tree_changes import TreeChanges
from odradek.simulation.virtual.disk import Survival
from odradek.simulation.virtual.loop import pass_time
from odradek.simulation.virtual.simulation import Simulation
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.wire_client import WireClient
from odradek.stores import MemoryStore, MemoryTree
from odradek.wire.client_security import password_login

T = TypeVar("T")
SESSION_TIMEOUT_S: Final = 6.0
BATCH_MS: Final = 1_700_000_000_000
"""The timestamp of the first record of `World.batch`."""

ConfigValue = str | int | float | bool | Sequence[str]
Scenario = Callable[["World"], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]
"""Runs a scenario in a new world: the type of the fixtures called `play`."""


class World:
    """Brokers on one metadata tree, and the clients that a test starts, each on its own host.

    `config` has Kafka's keys for all brokers. A single broker's host is `broker`; several have `broker-0`, `broker-1`,
    … by id. A killed broker's session ends at once if `noticed_at_once`, else after `SESSION_TIMEOUT_S`. `tree_s` is
    the mean latency to the tree (`SlowStore`), and `tree_lag_s` the mean lag of reads, if `tree_s` is not 0. With
    `racks`, each broker has a rack of its own: `rack-0`, `rack-1`, …. `before_start` is called with each broker.
    """

    def __init__(
        self,
        seed: int,
        config: Mapping[str, Any] | None = None,
        *,
        brokers: int = 1,
        noticed_at_once: bool = True,
        tree_s: float = 0.0,
        tree_lag_s: float = 0.0,
        racks: bool = False,
        limit_s: float = 3600.0,
        before_start: Callable[[Broker], object] = lambda broker: None,
    ) -> None:
        self.simulation = Simulation(seed, limit_s=limit_s)
        self.hosts = ["broker"] if brokers == 1 else [f"broker-{number}" for number in range(brokers)]
        self.servers = ",".join(f"{host}:9092" for host in self.hosts)
        self.tree = MemoryTree()
        self.tree_changes = TreeChanges(self.tree, self.simulation, led=lambda: self.led)
        self.new_store: Callable[[MemoryTree], MemoryStore] = MemoryStore
        """Opens a broker's session with the tree if `tree_s` is 0."""
        self.client_settings: Callable[[str], Mapping[str, Any]] = lambda host: {}
        """Returns the settings that all clients on a host have, such as the user; those of admins are of `admin`."""
        self.producers_made = 0
        self.leaders: dict[Partition, None] = {}
        """The partitions that a broker leads or has led; one that leads again, after a fence, counts again."""
        self._before_start = before_start
        self._config = property_texts(config or {})
        self._protocol = self._config.get("security.inter.broker.protocol", "PLAINTEXT")
        self._noticed_at_once = noticed_at_once
        self._tree_s, self._tree_lag_s = tree_s, tree_lag_s
        self._racks = racks
        self._running: dict[int, tuple[Broker, MemoryStore]] = {}

    # ---- brokers ----------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.simulation.clock.elapsed_s

    @property
    def running(self) -> dict[int, Broker]:
        """The brokers that run, by id."""
        return {number: broker for number, (broker, _) in self._running.items()}

    @property
    def led(self) -> list[Partition]:
        """The partitions that running brokers lead."""
        return [partition for broker in self.running.values() for partition in broker.partitions]

    @property
    def broker(self) -> Broker:
        """Broker 0, which must be running."""
        return self._running[0][0]

    @property
    def runtime(self) -> Runtime:
        """The runtime of broker 0."""
        return self.simulation.runtime(self.hosts[0])

    def store(self, number: int) -> MemoryStore:
        """Return a running broker's session with the tree."""
        return self._running[number][1]

    async def start(self, number: int = 0, *, admission: Admission | None = None, **config: ConfigValue) -> Broker:
        """Start a broker on its host's disk; `config` adds keys, with `_` for `.`."""
        host = self.hosts[number]
        own = {"broker.id": str(number), "listeners": f"{self._protocol}://{host}:9092", "log.dirs": "/data"}
        if self._racks:
            own["broker.rack"] = f"rack-{number}"
        more = property_texts({key.replace("_", "."): value for key, value in config.items()})
        settings = BrokerConfig.parse({**own, **self._config, **more})
        with self.simulation.on(host):
            store = self._open_session(host)
            broker = Broker(settings, self.simulation.runtime(host), store, admission=admission)
            broker.partitions.on_leadership(self._note_leader)
            self._before_start(broker)
            try:
                await broker.start()
            except BaseException:
                await self._end_session(store)
                self.simulation.kill(host)
                raise
        self._running[number] = broker, store
        return broker

    def _note_leader(self, place: TopicPartition, partition: Partition | None) -> None:
        del place
        if partition is not None:
            self.leaders[partition] = None

    async def stop(self, number: int = 0) -> None:
        """Stop a broker cleanly."""
        broker, store = self._running.pop(number)
        self.simulation.resume(self.hosts[number])
        with self.simulation.on(self.hosts[number]):
            await broker.stop()
            await store.close()

    async def kill(self, number: int = 0) -> None:
        """Kill a broker as `kill -9` does."""
        await self._end(number)
        self.simulation.kill(self.hosts[number])

    async def restart(self, number: int = 0) -> None:
        """Kill a broker and start it again."""
        await self.kill(number)
        await self.start(number)

    async def cut_power(self, survival: Survival = Survival.ANY, number: int = 0) -> None:
        """Cut the power of a broker's machine; unsynced data survives as `survival` says."""
        await self._end(number)
        self.simulation.cut_power(self.hosts[number], survival)

    def pause(self, number: int = 0) -> None:
        """Pause a broker's process, which loses contact with the tree; its session may expire."""
        self.store(number).disconnect()
        self.simulation.pause(self.hosts[number])

    def resume(self, number: int = 0) -> None:
        """Continue a paused broker, which is disconnected from the tree until `store(number).reconnect()`."""
        self.simulation.resume(self.hosts[number])

    def _open_session(self, host: str) -> MemoryStore:
        if not self._tree_s:
            return self.new_store(self.tree)
        chance = self.simulation.entropy(f"way of {host} to the tree at {self.now_s}")
        return SlowStore(self.tree, chance, self._tree_s, lag_s=self._tree_lag_s)

    async def _end(self, number: int) -> None:
        broker, store = self._running.pop(number)
        self.simulation.resume(self.hosts[number])
        broker.kill()
        await self._end_session(store)

    async def _end_session(self, store: MemoryStore) -> None:
        if self._noticed_at_once:
            await store.close()
        else:
            session = store.session_id
            store.abandon()
            asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.tree.expire, session)

    # ---- clients ----------------------------------------------------------------------------------------------------

    def producer(self, host: str, **settings: Any) -> Producer:
        """Return a producer on `host`."""
        self.producers_made += 1
        given = {**self.client_settings(host), **settings}
        return Producer(self.servers, runtime=self.simulation.runtime(host), **given)

    def consumer(self, host: str, *topics: str, **settings: Any) -> Consumer:
        """Return a consumer on `host` that starts at the beginning of each partition."""
        given = {"auto_offset_reset": "earliest", **self.client_settings(host), **settings}
        return Consumer(*topics, bootstrap_servers=self.servers, runtime=self.simulation.runtime(host), **given)

    def admin(self, host: str = "admin", **settings: Any) -> Admin:
        """Return an admin client on `host`."""
        given = {**self.client_settings("admin"), **settings}
        return Admin(self.servers, runtime=self.simulation.runtime(host), **given)

    async def client(self, name: str = "client", *, broker: int = 0, port: int = 9092) -> WireClient:
        """Connect a client whose client id and host are `name`, and log in if `client_settings` have a user.

        Requests of brokers have a proof, so that a test can act as one of them.
        """
        runtime, settings = self.simulation.runtime(name), self.client_settings(name)
        client = await WireClient.connect(runtime.network, self.hosts[broker], port, client_id=name)
        if broker in self.running:
            client.act_as_broker(self.running[broker].proofs.make)
        if "sasl_username" in settings:
            options = {"username": settings["sasl_username"], "password": settings["sasl_password"]}
            await client.log_in(password_login(settings["sasl_mechanism"], options, runtime.entropy))
        return client

    def spawn(self, host: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of the process `host`."""
        with self.simulation.on(host):
            return asyncio.create_task(work, name=host)

    async def create_topic(self, name: str, partitions: int = 1, replication_factor: int = -1) -> None:
        """Create a topic through the controller, or through broker 0 if there is none."""
        wanted = NewTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        controllers = [each for each in self.running.values() if each.metadata_loop.is_controller]
        (created,) = await (controllers or [self.broker])[0].create_topics([wanted])
        assert created.error is None, created

    async def read(self, topic: str, partitions: int | Sequence[int]) -> dict[int, list[bytes]]:
        """Return each partition's values by offset; `partitions` are their numbers, or how many there are."""
        records = await self.read_records(topic, partitions)
        return {number: [record.value or b"" for record in some] for number, some in records.items()}

    async def read_records(self, topic: str, partitions: int | Sequence[int]) -> dict[int, list[ConsumerRecord]]:
        """Return each partition's records by offset; `partitions` are their numbers, or how many there are."""
        numbers = range(partitions) if isinstance(partitions, int) else partitions
        places = [TopicPartition(topic, number) for number in numbers]
        found: dict[int, list[ConsumerRecord]] = {number: [] for number in numbers}
        async with self.consumer("auditor") as consumer:
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            while any(len(found[place.partition]) < end for place, end in ends.items()):
                for record in await consumer.poll(1000):
                    expected = len(found[record.partition])
                    assert record.offset == expected, f"{topic}-{record.partition} lacks the records from {expected} on"
                    found[record.partition].append(record)
        return found

    @staticmethod
    def batch(*values: bytes, **options: Any) -> bytearray:
        """Return a record batch with a record for each value; `options` are those of `encode_batch`."""
        return encode_batch([(BATCH_MS + number, None, value, ()) for number, value in enumerate(values)], **options)

    @staticmethod
    def values(records: bytes | bytearray | memoryview | None) -> list[bytes | None]:
        """Return the values of fetched records; an incomplete last batch is dropped, as clients do."""
        data = memoryview(records or b"")
        return [
            record.value
            for position, header in iterate_batches(data)
            for record in decode_records(data[position : position + header.size])
        ]

    # ---- time -------------------------------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def run(self, scenario: Scenario) -> None:
        """Run `scenario`, which starts brokers itself; brokers that still run at its end are abandoned."""
        self.simulation.run(scenario(self))

    def play(self, scenario: Callable[[Self], Coroutine[Any, Any, None]]) -> str:
        """Run `scenario` with every broker started before and stopped after it; return the trace's digest."""

        async def main() -> None:
            await asyncio.gather(*(self.start(number) for number in range(len(self.hosts))))
            await scenario(self)
            for number in sorted(self._running):
                await self.stop(number)

        self.simulation.run(main())
        return self.simulation.trace.digest


class Member:
    """A group member on its own host that polls in a task from `start` to `stop`."""

    def __init__(self, world: World, host: str, topic: str, group: str, **settings: Any) -> None:
        self.host = host
        self.read: list[bytes] = []
        self.consumer = world.consumer(host, topic, group_id=group, **settings)
        self._closing = AsyncExitStack()
        self._polling: asyncio.Task[None] | None = None

    @property
    def owned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    async def start(self) -> Self:
        await self._closing.enter_async_context(self.consumer)
        self._polling = asyncio.create_task(self._poll(), name=f"member {self.host}")
        return self

    async def stop(self) -> None:
        await self.fall_silent()
        await self._closing.aclose()

    async def fall_silent(self) -> None:
        """Stop polling without leaving the group."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
            self._polling = None

    async def _poll(self) -> None:
        while True:
            self.read += [record.value or b"" for record in await self.consumer.poll(1000)]


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their ends. Raise the exception of one that has failed."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    raise_failures(task for task in tasks if not task.cancelled())


def raise_failures(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def until(condition: Callable[[], bool], *, within_s: float = 120.0, each_s: float = 0.01) -> None:
    """Let virtual time pass until `condition` holds; it is checked each `each_s`, but not while no timer is due.

    Raises `TimeoutError` after `within_s`.
    """
    async with asyncio.timeout(within_s):
        while not condition():
            await pass_time(each_s)


async def settled(members: Sequence[Member], partitions: int) -> None:
    """Let virtual time pass until each partition has one owner and members own equally many, give or take one."""

    def is_settled() -> bool:
        owned = [member.owned for member in members]
        sizes = [len(some) for some in owned]
        return (
            set().union(*owned) == set(range(partitions)) and sum(sizes) == partitions and max(sizes) - min(sizes) <= 1
        )

    await until(is_settled)
