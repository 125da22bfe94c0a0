"""Disks that fill up on three brokers, in virtual time: replicas with space lead, and those without leave the ISR."""

import asyncio

import pytest

from odradek.broker.log.full_disks import HAND_OVER_S, QUIET_S
from odradek.metadata.image import PartitionImage
from odradek.metadata.nodes import NO_LEADER
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import controller

pytestmark = pytest.mark.long

PARTITIONS = 3
KEYS = [TopicPartition("t", number) for number in range(PARTITIONS)]
PATIENT = {"replica.lag.time.max.ms": "60000", "leader.imbalance.check.interval.seconds": "20"}


async def create(world: World) -> None:
    await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=3)
    await until(lambda: all(len(broker.logs.logs) == PARTITIONS for broker in world.running.values()))
    await write(world, 0)


async def write(world: World, value: int) -> None:
    async with world.producer("writer") as producer:
        for key in KEYS:
            await (await producer.send("t", b"%d" % value, partition=key.partition))


def images(world: World) -> list[PartitionImage]:
    """The controller's images of all partitions."""
    topic = world.running[controller(world)].image.topics["t"]
    return [topic.partitions[number] for number in range(PARTITIONS)]


def fill(world: World, *numbers: int) -> None:
    for number in numbers:
        disk = world.simulation.disk(world.hosts[number])
        disk.capacity_bytes = disk.used_bytes()


def empty(world: World, number: int) -> None:
    world.simulation.disk(world.hosts[number]).capacity_bytes = None


async def check_all_is_well(world: World, values: int) -> None:
    """Preferred replicas lead, all are in sync, and every value is in every partition once."""
    await until(lambda: all(sorted(each.isr) == [0, 1, 2] for each in images(world)))
    await until(lambda: all(each.leader == each.replicas[0] for each in images(world)))
    expected = [b"%d" % value for value in range(values)]
    assert await world.read("t", PARTITIONS) == dict.fromkeys(range(PARTITIONS), expected)


@pytest.mark.parametrize("full", range(3), ids="broker {}".format)
@in_world(PATIENT, brokers=3)
async def test_other_replicas_lead_while_a_disk_is_full_and_the_preferred_ones_when_it_has_space(
    world: World, full: int
) -> None:
    """The full broker leads one partition and follows two; it may be the controller."""
    await create(world)
    others = sorted({0, 1, 2} - {full})
    commander = controller(world)
    fill(world, full)
    began = world.now_s
    for value in range(1, 10):
        await write(world, value)
        await asyncio.sleep(1)
    assert world.now_s - began < 9 + HAND_OVER_S + 5
    assert [sorted(each.isr) for each in images(world)] == [others] * PARTITIONS
    assert full not in {each.leader for each in images(world)}
    assert controller(world) == commander
    [line] = world.running[full].partitions.write_scheduler.full_disks.sentences()
    assert line.endswith("s ago; in-sync replicas elsewhere, if any, lead its partitions")
    await asyncio.sleep(60)
    assert [sorted(each.isr) for each in images(world)] == [others] * PARTITIONS
    empty(world, full)
    await check_all_is_well(world, 10)
    assert world.running[full].partitions.write_scheduler.full_disks.sentences() == []


@pytest.mark.parametrize("chance", range(6))
def test_a_full_replica_does_not_keep_another_one_out_of_the_isr(chance: int) -> None:
    """The full broker has all records of an idle partition, and fetches as often as the one that may join."""

    async def scene(world: World) -> None:
        await create(world)
        leader = controller(world)
        [idle] = [number for number, each in enumerate(images(world)) if each.leader == leader]
        full, other = {0, 1, 2} - {leader}
        fill(world, full)

        async def write_elsewhere() -> None:
            async with world.producer("writer") as producer:
                while True:
                    for number in {0, 1, 2} - {idle}:
                        await (await producer.send("t", b"x", partition=number))
                    await asyncio.sleep(1)

        writing = asyncio.ensure_future(write_elsewhere())
        await until(lambda: full not in images(world)[idle].isr)
        await world.restart(other)
        await until(lambda: sorted(images(world)[idle].isr) == sorted({leader, other}), within_s=10)
        assert full not in images(world)[idle].isr
        writing.cancel()

    World(chance, PATIENT, brokers=3).play(scene)


@in_world(PATIENT, brokers=3)
async def test_a_shortage_of_a_moment_moves_no_leader(world: World) -> None:
    await create(world)
    epochs = [each.leader_epoch for each in images(world)]
    fill(world, 0)
    writing = asyncio.ensure_future(write(world, 1))
    await asyncio.sleep(HAND_OVER_S - 1)
    empty(world, 0)
    await writing
    await asyncio.sleep(QUIET_S)
    await write(world, 2)
    await check_all_is_well(world, 3)
    assert [each.leader_epoch for each in images(world)] == epochs


@in_world(PATIENT, brokers=3)
async def test_leaders_stay_while_all_disks_are_full_and_the_first_with_space_leads(world: World) -> None:
    await create(world)
    fill(world, 0, 1, 2)
    async with world.producer("unlucky", retries=0) as producer:
        for value in range(20):
            for key in KEYS:
                with pytest.raises(KafkaError) as caught:
                    await (await producer.send("t", b"refused %d" % value, partition=key.partition))
                assert caught.value.code in {ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower}
            await asyncio.sleep(1)
    assert NO_LEADER not in {each.leader for each in images(world)}
    assert await world.read("t", PARTITIONS) == {number: [b"0"] for number in range(PARTITIONS)}
    epochs = [each.leader_epoch for each in images(world)]
    await asyncio.sleep(60)
    assert [each.leader_epoch for each in images(world)] == epochs
    empty(world, 1)
    await write(world, 1)
    empty(world, 0)
    empty(world, 2)
    await check_all_is_well(world, 2)


@in_world(PATIENT, brokers=3)
async def test_a_full_broker_that_starts_again_and_a_new_controller_lead_to_the_same_leaders(world: World) -> None:
    await create(world)
    full = next(number for number in range(3) if number != controller(world))
    fill(world, full)
    for value in range(1, 6):
        await write(world, value)
        await asyncio.sleep(1)
    assert full not in {each.leader for each in images(world)}
    commander = controller(world)
    await world.kill(commander)
    await until(lambda: any(broker.metadata_loop.is_controller for broker in world.running.values()))
    await world.start(commander)
    await asyncio.sleep(30)
    await write(world, 6)
    assert full not in {each.leader for each in images(world)}
    await world.stop(full)
    await world.start(full)
    for value in range(7, 13):
        await write(world, value)
        await asyncio.sleep(1)
    assert full not in {each.leader for each in images(world)}
    empty(world, full)
    await check_all_is_well(world, 13)
