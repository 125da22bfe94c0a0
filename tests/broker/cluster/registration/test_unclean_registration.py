"""A broker that may have lost the ends of its logs registers when it counts as in sync no longer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.cluster.registration.unclean_registration import wait_until_out_of_isrs
from odradek.config.listeners import parse_listener
from odradek.metadata import paths
from odradek.metadata.nodes import BrokerNode, PartitionStateNode, TopicNode
from odradek.model import TopicPartition, UnavailableError
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation
from tests.world.scenes import played_by

T0 = TopicPartition("t", 0)


class Tree:
    """A tree with the topic t, replicated on brokers 0, 1 and 2, of which those of `alive` are registered."""

    def __init__(self, *alive: int) -> None:
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.alive = alive

    async def fill(self, isr: tuple[int, ...]) -> None:
        for path in ("/brokers", paths.BROKER_IDS, paths.TOPICS, "/config", paths.TOPIC_CONFIGS):
            await self.store.create(path)
        for number in self.alive:
            address = parse_listener(f"PLAINTEXT://broker-{number}:9092")
            node = BrokerNode(endpoints=(address,), timestamp_ms=0)
            await self.store.create(paths.broker(number), node.encode(), ephemeral=True)
        await self.store.create(paths.topic("t"), TopicNode(topic_id=None, replicas={0: (0, 1, 2)}).encode())
        await self.store.create(paths.partitions("t"))
        await self.store.create(paths.partition(T0))
        await self.store.create(paths.partition_state(T0), self.state(isr))

    async def set_isr(self, *isr: int) -> None:
        await self.store.set(paths.partition_state(T0), self.state(isr))

    def state(self, isr: tuple[int, ...]) -> bytes:
        return PartitionStateNode(leader=isr[0], leader_epoch=1, isr=isr, controller_epoch=1).encode()

    async def wait(self) -> None:
        """As broker 0."""
        await wait_until_out_of_isrs(self.store, 0, timeout_s=36.0)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    Simulation(seed=1).run(main())


@played_by(play)
async def test_registration_waits_until_the_controller_removed_the_broker_from_the_isr() -> None:
    tree = Tree(1, 2)
    await tree.fill((0, 1, 2))
    waiting = asyncio.create_task(tree.wait())
    await asyncio.sleep(5)
    assert not waiting.done()
    await tree.set_isr(1, 0, 2)
    await asyncio.sleep(5)
    assert not waiting.done(), "it leads no longer, and could be elected still"
    await tree.set_isr(1, 2)
    await asyncio.sleep(0.1)
    assert waiting.done()
    await waiting


@pytest.mark.parametrize(("alive", "isr"), [((1, 2), (1, 2)), ((), (0, 1, 2)), ((1, 2), (0,)), ((1,), (0, 2))], ids=str)
@played_by(play)
async def test_registration_does_not_wait_without_another_live_in_sync_replica(
    *, alive: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    tree = Tree(*alive)
    await tree.fill(isr)
    async with asyncio.timeout(0.1):
        await tree.wait()
    assert [node is not None for node in await tree.store.get_many([paths.partition_state(T0)])] == [True]


@played_by(play)
async def test_registration_stops_waiting_when_the_other_replicas_are_gone() -> None:
    tree = Tree(1)
    await tree.fill((0, 1))
    waiting = asyncio.create_task(tree.wait())
    await asyncio.sleep(5)
    assert not waiting.done()
    await tree.store.delete(paths.broker(1))
    async with asyncio.timeout(0.1):
        await waiting


def test_registration_without_a_controller_fails_in_the_end(caplog: pytest.LogCaptureFixture):
    async def scene() -> None:
        tree = Tree(1, 2)
        await tree.fill((0, 1, 2))
        with pytest.raises(UnavailableError, match="no controller takes it out of the ISR of t-0"):
            await tree.wait()

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert len([line for line in caplog.messages if "after an unclean shutdown" in line]) == 1
