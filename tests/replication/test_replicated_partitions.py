"""Partitions on three brokers, in virtual time (M1): what is acknowledged by all is on all, and outlives its leader."""

import pytest
from world import World, until

from odradek.broker.partition import Partition
from odradek.clients import Admin
from odradek.model import TopicPartition

T0 = TopicPartition("t", 0)


async def create(world: World, *, replicas: int = 3, partitions: int = 1, **config: str) -> None:
    async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        await admin.create_topic("t", partitions=partitions, replication_factor=replicas, configs=settings)
    await until(lambda: all("t" in broker.image.topics for broker in world.running.values()))


def leader_of(world: World, key: TopicPartition = T0) -> tuple[int, Partition]:
    (found,) = [
        (number, partition)
        for number, broker in world.running.items()
        if (partition := broker.partitions.get(key)) is not None
    ]
    return found


async def fill(world: World, count: int, *, first: int = 0, **settings: object) -> None:
    async with world.producer("writer", **settings) as producer:
        for value in range(first, first + count):
            await producer.send("t", b"%d" % value, partition=0)


def numbers(count: int) -> dict[int, list[bytes]]:
    return {0: [b"%d" % value for value in range(count)]}


def end_offsets(world: World, key: TopicPartition = T0) -> dict[int, int]:
    return {number: broker.logs.logs[key].written_offset for number, broker in world.running.items()}


def test_what_is_acknowledged_is_on_every_replica() -> None:
    async def scene(world: World) -> None:
        await create(world)
        await fill(world, 100)
        assert end_offsets(world) == {0: 100, 1: 100, 2: 100}
        assert await world.read("t", 1) == numbers(100)
        leader, partition = leader_of(world)
        assert partition.isr == tuple(world.running[leader].image.partition(T0).replicas)
        await until(lambda: all(each.logs.logs[T0].high_watermark == 100 for each in world.running.values()))

    World(1, brokers=3).play(scene)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_acknowledged_outlives_its_leader(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world)
        await fill(world, 100)
        leader, _ = leader_of(world)
        await world.kill(leader)
        await fill(world, 50, first=100)
        assert leader_of(world)[0] != leader
        assert await world.read("t", 1) == numbers(150)
        await world.start(leader)
        await until(lambda: len(leader_of(world)[1].isr) == 3)
        assert set(end_offsets(world).values()) == {150}

    World(seed, brokers=3).play(scene)
