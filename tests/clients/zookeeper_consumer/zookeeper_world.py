"""A world with one broker, and members of generation 1 that read all the time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

from odradek.clients.zookeeper_consumer import KafkaStream, TopicFilter, ZookeeperConsumer
from odradek.metadata.store import Store
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore

Scenario = Callable[[World], Coroutine[Any, Any, None]]
GROUP = "readers"


def play(seed: int, scenario: Scenario, **options: Any) -> str:
    """Run a scenario with one broker; return the trace's digest."""
    return World(seed, {"offsets.topic.num.partitions": "1", **options.pop("config", {})}, **options).play(scenario)


class Reader:
    """A consumer on a host of its own, with so many threads, each read by a task."""

    def __init__(
        self,
        world: World,
        name: str,
        topics: dict[str, int] | TopicFilter,
        *,
        store: Store | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.topics = topics
        self.store = store if store is not None else MemoryStore(world.tree)
        self.read: list[bytes] = []
        self.streams: list[KafkaStream] = []
        given = {
            "group_id": GROUP,
            "consumer_id": name,
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": 1_000,
            **settings,
        }
        self.consumer = ZookeeperConsumer(store=self.store, runtime=world.simulation.runtime(name), **given)
        self._reading: list[asyncio.Task[None]] = []

    async def start(self) -> Self:
        """Join the group, and read."""
        await self.consumer.start()
        if isinstance(self.topics, TopicFilter):
            self.streams = await self.consumer.create_message_streams_by_filter(self.topics)
        else:
            made = await self.consumer.create_message_streams(self.topics)
            self.streams = [stream for some in made.values() for stream in some]
        self._reading = [asyncio.create_task(self._read(stream)) for stream in self.streams]
        return self

    async def stop(self) -> None:
        """Leave the group."""
        await self.consumer.close()
        await self._stop_reading()

    async def fall_silent(self) -> None:
        """Stop as a process that hangs: no reading, no answer to the tree."""
        assert isinstance(self.store, MemoryStore)
        self.store.disconnect()
        await self._stop_reading()

    async def _stop_reading(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read(self, stream: KafkaStream) -> None:
        async for record in stream:
            self.read.append(record.value or b"")

    @property
    def owned(self) -> set[int]:
        """Numbers of the partitions that it has."""
        return {place.partition for place in self.consumer.owned()}


async def expect(condition: Callable[[], bool]) -> None:
    """Let time pass until a condition holds; fail if it does not."""
    try:
        await until(condition)
    except TimeoutError:
        raise AssertionError("what was expected did not happen") from None


def owners(*readers: Reader) -> list[set[int]]:
    """The partitions of each."""
    return [reader.owned for reader in readers]


async def produce(world: World, topic: str, *records: tuple[int, bytes]) -> None:
    """Write records, each with its partition."""
    async with world.producer("writer") as producer:
        for partition, value in records:
            await producer.send(topic, value, partition=partition)
        await producer.flush()
