"""Brokers' shells on one tree in memory, on virtual time: `play` runs a scenario with a `World`."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from ears import HearingShell

from odradek.config import BrokerConfig, ListenerAddress
from odradek.metadata.image import ClusterImage
from odradek.metadata.reading import read_subtree
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation

CONFIG = BrokerConfig(num_partitions=2)


class World:
    """A tree, a store that no broker uses, and brokers."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.images: dict[int, list[ClusterImage]] = {}

    def broker(
        self, broker_id: int = 0, *, config: BrokerConfig = CONFIG, store: Any = None, port: int | None = None
    ) -> HearingShell:
        images = self.images.setdefault(broker_id, [])

        def on_image(old: ClusterImage, new: ClusterImage) -> None:
            assert old is not new
            assert not images or images[-1] is old or old == ClusterImage(cluster_id=old.cluster_id)
            images.append(new)

        return HearingShell(
            store or MemoryStore(self.tree),
            broker_id,
            ListenerAddress("PLAINTEXT", "localhost", port or 9092 + broker_id),
            config,
            self.simulation.runtime(f"broker-{broker_id}"),
            on_image=on_image,
        )

    async def started(self, broker_id: int = 0, **more: Any) -> HearingShell:
        shell = self.broker(broker_id, **more)
        await shell.start()
        return shell

    def kill(self, shell: HearingShell) -> None:
        """The broker dies, and its session is found out."""
        shell.kill()
        shell.store.abandon()
        self.tree.expire(shell.store.session_id)

    async def value(self, path: str) -> Any:
        return json.loads((await self.store.get(path)).data)

    async def until(self, condition: Callable[[], object]) -> None:
        """Give the others turns until something is so; virtual time ends a test that waits in vain."""
        while not condition():
            await asyncio.sleep(0.01)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until_childless(self, path: str) -> None:
        while await self.store.children(path):
            await asyncio.sleep(0.01)

    async def everything(self) -> list[str]:
        return await read_subtree(self.store, "/brokers/topics")


@pytest.fixture
def play(seed: int) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        simulation = Simulation(seed)

        async def main() -> None:
            await scenario(World(simulation))

        simulation.run(main())

    return run


@pytest.fixture
def world_of() -> type[World]:
    """What makes a `World` of a simulation, for those that play several."""
    return World
