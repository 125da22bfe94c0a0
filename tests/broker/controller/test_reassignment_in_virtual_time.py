"""Brokers with records: the controller is killed before each of its writes while a partition moves (M1, M10)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.store import Operation
from odradek.model import TopicPartition
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore

pytestmark = pytest.mark.long

KEY = TopicPartition("t", 0)
MOST_WRITES = 40
CONFIG = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
}


def dies_before(store: Any, writes: int) -> asyncio.Event:
    """Let a broker's session do so many transactions more; the event says when it stands before the next."""
    ordinary, left, stands = store.multi, [writes], asyncio.Event()

    async def multi(operations: Sequence[Operation]) -> Any:
        if left[0] == 0:
            stands.set()
            await asyncio.get_running_loop().create_future()
        left[0] -= 1
        return await ordinary(operations)

    store.multi = multi
    return stands


def is_moved(world: World, target: tuple[int, ...]) -> bool:
    now = [broker.image.partition(KEY) for broker in world.running.values()]
    return all(each is not None and each.replicas == target and set(each.isr) == set(target) for each in now)


async def move(world: World, writes: int) -> bool:
    """Move a partition while it is written to. Return whether the controller died meanwhile."""
    await until(lambda: all(len(each.image.brokers) == 4 for each in world.running.values()))
    controller = next(number for number, broker in world.running.items() if broker.metadata_loop.is_controller)
    other, *rest = sorted(world.running.keys() - {controller})
    target = tuple(rest)
    wanted = NewTopic(name="t", assignment={0: (controller, other)})
    [created] = await world.running[controller].create_topics([wanted])
    assert created.error is None
    acknowledged: list[bytes] = []
    is_over = False

    async def write() -> None:
        async with world.producer("writer", acks="all", enable_idempotence=True) as producer:
            number = 0
            while not is_over:
                value = str(number).encode()
                await (await producer.send("t", value, partition=0))
                acknowledged.append(value)
                number += 1

    writing = asyncio.create_task(write())
    await until(lambda: len(acknowledged) > 20)
    mortal: Any = world.store(controller)
    stands = dies_before(mortal, writes)
    node = ReassignPartitionsNode(replicas={KEY: target})
    tool = MemoryStore(world.tree)
    await tool.create("/admin/reassign_partitions", node.encode())
    while not stands.is_set() and (
        not is_moved(world, target) or await tool.get("/admin/reassign_partitions") is not None
    ):
        await asyncio.sleep(0.01)
    if stands.is_set():
        await world.kill(controller)
    else:
        del mortal.multi
    while not is_moved(world, target) or await tool.get("/admin/reassign_partitions") is not None:
        await asyncio.sleep(0.01)
    count = len(acknowledged)
    await until(lambda: len(acknowledged) > count + 20)
    is_over = True
    await writing
    assert (await world.read("t", 1))[0] == acknowledged
    for number, broker in world.running.items():
        assert (KEY in set(broker.logs)) == (number in target), number
    return stands.is_set()


def test_the_next_controller_finishes_a_reassignment_without_losing_records(seed):
    deaths = 0
    for writes in range(MOST_WRITES):
        died = False

        async def scenario(world: World, writes: int = writes) -> None:
            nonlocal died
            died = await move(world, writes)

        World(seed, CONFIG, brokers=4).play(scenario)
        if not died:
            break
        deaths += 1
    assert 4 <= deaths < MOST_WRITES
