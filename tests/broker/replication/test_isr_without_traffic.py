"""Without faults and records no replica leaves an ISR, whichever broker leads (M1)."""

import asyncio

import pytest

from odradek.model import TopicPartition
from odradek.simulation.world import World, until
from tests.world.scenes import in_world

pytestmark = pytest.mark.long

MAX_LAG_S = 2


@pytest.mark.parametrize("seed", range(3))
@in_world({"replica.lag.time.max.ms": str(MAX_LAG_S * 1000)}, brokers=3)
async def test_idle_followers_stay_in_sync(world: World) -> None:
    """A leader knows the other brokers from the controller's requests, or from the tree if it is the controller."""
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=6, replication_factor=3)
    await until(lambda: [len(list(broker.partitions)) for broker in world.running.values()] == [2, 2, 2])
    await asyncio.sleep(MAX_LAG_S * 5)  # of virtual time
    for broker in world.running.values():
        assert [len(partition.isr) for partition in broker.partitions] == [3, 3]
        assert not broker.alter_partition_manager.shrinks
        silent_ms = [
            broker.alter_partition_manager.monotonic_ms() - remote.last_caught_up_ms
            for partition in broker.partitions
            for remote in partition.replication.remotes.values()
        ]
        assert max(silent_ms) < MAX_LAG_S * 1000, "a first record would make it look late"


@pytest.mark.parametrize("seed", range(3))
@in_world({"replica.lag.time.max.ms": str(MAX_LAG_S * 1000)}, brokers=3)
async def test_a_returning_broker_rejoins_the_isr_of_every_leader(world: World, seed: int) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=6, replication_factor=3)
    await world.kill(seed % 3)
    await until(lambda: sum(1 for broker in world.running.values() for _ in broker.partitions) == 6)
    await world.start(seed % 3)
    await until(lambda: [len(each.isr) for broker in world.running.values() for each in broker.partitions] == [3] * 6)
    for number, broker in world.running.items():
        for key in (TopicPartition("t", each) for each in range(6)):
            image = broker.image.partition(key)
            assert image is not None
            assert number in image.replicas


@pytest.mark.parametrize("seed", range(6))
@in_world(brokers=3)
async def test_a_stopping_follower_does_not_delay_producers(world: World, seed: int) -> None:
    """The broker that stops follows until the end, and is refused when its leader would have it back in sync."""
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=6, replication_factor=3)
    async with world.producer("writer", delivery_timeout_ms=20_000, request_timeout_ms=10_000) as producer:
        for round_ in range(3):
            stopping = asyncio.create_task(world.stop((seed + round_) % 3))
            for value in range(60):
                await (await producer.send("t", b"%d" % value, partition=value % 6))
            await stopping
            for partition in range(6):
                await (await producer.send("t", b"stopped", partition=partition))
            await world.start((seed + round_) % 3)
    assert sum(len(values) for values in (await world.read("t", 6)).values()) == 3 * 66
