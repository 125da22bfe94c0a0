"""Metadata loops of several brokers on one tree in memory, in virtual time, without the brokers around them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import ClusterImage, MetadataDelta
from odradek.metadata.reading import read_subtree
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation
from tests.broker.controller.command_listener import ListeningMetadataLoop

CONFIG = BrokerConfig(num_partitions=2)


class ControlPlane:
    """Metadata loops on one tree; `store` is a session of the tree that no loop uses.

    `images` has each broker's images, `history` those of all brokers in the order in which they came.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.images: dict[int, list[ClusterImage]] = {}
        self.history: list[ClusterImage] = []

    def broker(
        self,
        broker_id: int = 0,
        *,
        config: BrokerConfig = CONFIG,
        store: MemoryStore | None = None,
        port: int | None = None,
    ) -> ListeningMetadataLoop:
        images = self.images.setdefault(broker_id, [])

        def on_image(delta: MetadataDelta) -> None:
            old, new = delta.old, delta.new
            assert old is not new
            assert not images or images[-1] is old or old == ClusterImage(cluster_id=old.cluster_id, secret=old.secret)
            images.append(new)
            self.history.append(new)

        return ListeningMetadataLoop(
            store or MemoryStore(self.tree),
            broker_id,
            ListenerAddress("PLAINTEXT", "localhost", port or 9092 + broker_id),
            config,
            self.simulation.runtime(f"broker-{broker_id}"),
            on_image=on_image,
        )

    async def started(
        self,
        broker_id: int = 0,
        *,
        config: BrokerConfig = CONFIG,
        store: MemoryStore | None = None,
        port: int | None = None,
    ) -> ListeningMetadataLoop:
        loop = self.broker(broker_id, config=config, store=store, port=port)
        await loop.start()
        return loop

    def kill(self, loop: ListeningMetadataLoop) -> None:
        """Kill a broker and expire its session."""
        loop.kill()
        loop.store.abandon()
        self.tree.expire(loop.store.session_id)

    async def value(self, path: str) -> Any:
        node = await self.store.get(path)
        assert node is not None, path
        return json.loads(node.data)

    async def until(self, condition: Callable[[], object]) -> None:
        """Let virtual time pass until `condition` holds; the limit of virtual time ends a test that waits in vain."""
        while not condition():
            await asyncio.sleep(0.01)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until_childless(self, path: str) -> None:
        while await self.store.children(path):
            await asyncio.sleep(0.01)

    async def everything(self) -> list[str]:
        return await read_subtree(self.store, "/brokers/topics")
