"""A broker in virtual time, and clients that send the requests of a test in the versions it chooses."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from raw_client import RawClient

from odradek.broker.lifecycle import Broker
from odradek.config import load
from odradek.controller import NewTopic
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation


class Stage:
    """A host with a broker that can die and come back, and a metadata tree that stays."""

    def __init__(self, simulation: Simulation, config: dict[str, str]) -> None:
        self.simulation = simulation
        self.config = {
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "listeners": "PLAINTEXT://broker:9092",
            "log.dirs": "/data",
            "num.partitions": "3",
        } | config
        self.tree = MemoryTree()
        self.broker: Broker
        self.store: MemoryStore

    async def start(self) -> None:
        runtime = self.simulation.runtime("broker")
        self.store = MemoryStore(self.tree)
        self.broker = Broker(load(None, self.config), runtime, self.store)
        await self.broker.start()

    async def kill(self) -> None:
        """Kill the broker as kill -9 does."""
        self.broker.kill()
        self.simulation.kill("broker")
        self.store.abandon()
        self.tree.expire(self.store.session_id)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def time_passes(self, seconds: float) -> None:
        """It takes none: the clock is virtual."""
        await asyncio.sleep(seconds)

    async def client(self, name: str = "client") -> RawClient:
        network = self.simulation.runtime(f"host of {name}").network
        _, protocol = await network.connect(lambda: RawClient(name), "broker", 9092)
        return protocol

    async def create_topic(self, name: str, partitions: int = 3) -> None:
        (created,) = await self.broker.create_topics([NewTopic(name=name, num_partitions=partitions)])
        assert created.error is None


@pytest.fixture
def play(seed: int) -> Callable[..., None]:
    """Run a scenario on a stage; keywords are the broker's configuration, with `_` for `.`."""

    def run(scenario: Callable[[Stage], Coroutine[Any, Any, None]], **config: str) -> None:
        simulation = Simulation(seed, limit_s=100_000)
        stage = Stage(simulation, {key.replace("_", "."): value for key, value in config.items()})

        async def main() -> None:
            await stage.start()
            try:
                await scenario(stage)
            finally:
                await stage.broker.stop()

        simulation.run(main())

    return run
