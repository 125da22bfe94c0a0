"""The metadata loop on a SQLite tree and the system's event loop."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import ClusterImage
from odradek.metadata.new_topic import NewTopic
from odradek.runtime import system_runtime
from odradek.simulation.virtual.clock import VirtualClock
from odradek.simulation.virtual.network import MemoryNetwork
from odradek.simulation.virtual.trace import Trace
from odradek.stores import SqliteStore
from tests.broker.controller.command_listener import ListeningMetadataLoop

pytestmark = pytest.mark.asyncio


def memory_network() -> MemoryNetwork:
    return MemoryNetwork(VirtualClock(), random.Random(1), Trace())


class Node:
    """A broker's store and metadata loop, and a way to wait for its image."""

    def __init__(self, path: Path, network: MemoryNetwork, broker_id: int = 0) -> None:
        self.store = SqliteStore(str(path), system_runtime())
        self._changed = asyncio.Event()
        self.loop = ListeningMetadataLoop(
            self.store,
            broker_id,
            ListenerAddress("PLAINTEXT", "localhost", 9092 + broker_id),
            BrokerConfig(),
            replace(system_runtime(), network=network.host(f"broker-{broker_id}")),
            on_image=lambda delta: self._changed.set(),
        )

    def die(self) -> None:
        self.loop.kill()
        self.store.abandon()

    async def leave(self) -> None:
        await self.loop.stop()
        await self.store.close()

    async def until(self, condition: Callable[[ClusterImage], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition(self.loop.image):
                self._changed.clear()
                await self._changed.wait()


async def test_topics_outlive_a_broker_that_was_killed(tmp_path) -> None:
    """M9."""
    path = tmp_path / "metadata.sqlite"
    first = Node(path, memory_network())
    await first.loop.start()
    await first.loop.create_topics([NewTopic(name="a", num_partitions=3), NewTopic(name="b")])
    await first.loop.delete_topics(["b"])
    first.die()
    second = Node(path, memory_network())
    await second.loop.start()
    assert second.loop.is_controller
    assert second.loop.image.controller_epoch == 2
    assert second.loop.image.topics == first.loop.image.topics
    assert list(second.loop.image.topics) == ["a"]
    await second.leave()


async def test_a_broker_takes_over_from_one_that_was_killed(tmp_path) -> None:
    """M1."""
    path = tmp_path / "metadata.sqlite"
    network = memory_network()
    one, two = Node(path, network, 1), Node(path, network, 2)
    await one.loop.start()
    await two.loop.start()
    await one.until(lambda image: len(image.brokers) == 2)
    await one.loop.create_topics([NewTopic(name="a", assignment={0: (1, 2)})])
    one.die()
    await two.until(lambda image: "a" in image.topics and image.topics["a"].partitions[0].leader == 2)
    assert two.loop.is_controller
    await two.leave()
