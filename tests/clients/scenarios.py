"""Shared helpers of consumer tests in a `World`: a topic with numbered records, and a scenario played over both."""

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.clients import Consumer
from odradek.model import TopicPartition
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.world import World

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


async def create(world: World, name: str = "t", partitions: int = 1) -> None:
    async with world.admin() as admin:
        await admin.create_topic(name, partitions=partitions)


async def fill(world: World, count: int, *, topic: str = "t", first: int = 0, **settings: Any) -> None:
    """`count` records with their numbers as values, over partition 0 or, if there are several, in turn."""
    async with world.producer("writer", **settings) as producer:
        numbers = await producer.partitions_for(topic)
        for value in range(first, first + count):
            await producer.send(
                topic, b"%d" % value, partition=numbers[value % len(numbers)], timestamp_ms=EPOCH_MS + value
            )


def play(world: World, scene: Callable[[World], Awaitable[None]], *, partitions: int = 1, count: int = 0) -> None:
    async def scenario(_: World) -> None:
        await create(world, partitions=partitions)
        await fill(world, count)
        await scene(world)

    world.play(scenario)


def values(records: Any) -> list[int]:
    return [int(record.value) for record in records]


async def poll_all(consumer: Consumer, count: int, **options: Any) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += values(await consumer.poll(10_000, **options))
    return found
