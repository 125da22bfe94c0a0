"""DeleteRecords: what is acknowledged as deleted does not come back when another broker leads, or starts again."""

import asyncio

import pytest

from odradek.clients import Admin
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.model import TopicPartition
from odradek.simulation.promises import BROKERS
from odradek.simulation.setup import CONFIG
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from tests.world.scenes import in_world

PLACE = TopicPartition("t", 0)


async def leader_with_records(world: World) -> int:
    await create_topic(world, "t", 1)
    async with world.producer("writer") as producer:
        for number in range(10):
            await (await producer.send("t", b"%d" % number, partition=0))
    return next(number for number, broker in world.running.items() if broker.partitions.get(PLACE))


def admin(world: World, **settings: int) -> Admin:
    return world.admin(**settings)


def starts(world: World) -> list[int]:
    return [broker.logs.logs[PLACE].log_start_offset for broker in world.running.values()]


@in_world(CONFIG, seed=1, brokers=BROKERS)
async def test_a_deletion_is_acknowledged_when_all_live_replicas_have_it(world: World) -> None:
    leader = await leader_with_records(world)
    followers = [host for number, host in enumerate(world.hosts) if number != leader]
    async with admin(world) as client:
        await client.delete_records({PLACE: 4})
    assert starts(world) == [4, 4, 4]
    async with admin(world, request_timeout_ms=2_000, default_api_timeout_ms=2_000) as client:
        world.simulation.network.partition([world.hosts[leader]], followers)
        with pytest.raises(RefusedPartitionsError, match="t-0: REQUEST_TIMED_OUT"):
            await client.delete_records({PLACE: 6})
        assert sorted(starts(world)) == [4, 4, 6]
        world.simulation.network.heal()
    await until(lambda: starts(world) == [6, 6, 6])


@in_world(CONFIG, seed=1, brokers=BROKERS)
async def test_a_deletion_that_waits_when_its_leader_dies_is_repeated_at_the_next_one(world: World) -> None:
    leader = await leader_with_records(world)
    others = [host for number, host in enumerate(world.hosts) if number != leader]
    async with admin(world) as client:
        world.simulation.network.partition([world.hosts[leader]], others)
        deletion = asyncio.create_task(client.delete_records({PLACE: 4}))
        await until(lambda: sorted(starts(world)) == [0, 0, 4])
        await world.kill(leader)
        assert await deletion == {PLACE: 4}
    assert starts(world) == [4, 4]


@in_world(CONFIG, seed=1, brokers=BROKERS)
async def test_deleted_records_stay_deleted_when_all_brokers_are_killed(world: World) -> None:
    await leader_with_records(world)
    async with admin(world) as client:
        await client.delete_records({PLACE: 4})
    for number in range(BROKERS):
        await world.kill(number)
    for number in range(BROKERS):
        await world.start(number)
        assert starts(world)[-1] == 4
