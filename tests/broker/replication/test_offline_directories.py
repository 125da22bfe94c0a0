"""A broker starts with two data directories, of which one cannot be read (KIP-112)."""

import pytest

from odradek.metadata.nodes import NO_LEADER
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

DIRECTORIES = {"log.dirs": "/a,/b"}


def log_in(world: World, number: int, directory: str) -> TopicPartition:
    """The partition of `t` whose log a broker has in a directory."""
    logs = world.running[number].logs.logs
    return next(key for key, log in logs.items() if log.directory.startswith(f"{directory}/t-"))


@in_world(DIRECTORIES)
async def test_a_broker_with_an_offline_directory_serves_the_other_and_accepts_new_topics(world: World) -> None:
    await create(world, "t", partitions=2, replicas=1)
    await write(world, "t", 0, b"0")
    await write(world, "t", 1, b"1")
    here, there = log_in(world, 0, "/a"), log_in(world, 0, "/b")
    disk = world.simulation.disk("broker")
    await world.stop()
    disk.broken.add("/b")
    await world.start()

    broker = world.running[0]
    await until(lambda: image(world, there).leader == NO_LEADER)
    assert image(world, there).isr == (0,), "nobody else has it"
    assert image(world, here).leader == 0
    assert broker.logs.get(there) is None
    assert not disk.exists(f"/a/{there}"), "an empty log would say that nothing was acknowledged"
    with pytest.raises(KafkaError) as refused:
        broker.partitions.leader(*there)
    assert refused.value.code == ErrorCode.kafka_storage_error
    await write(world, "t", here.partition, b"more")
    await create(world, "u", partitions=2, replicas=1)
    await write(world, "u", 1, b"u")
    async with world.admin() as admin:
        described = {each.log_dir: each for each in await admin.describe_log_dirs(0)}
    assert {path: each.error_code for path, each in described.items()} == {
        "/a": ErrorCode.none,
        "/b": ErrorCode.kafka_storage_error,
    }

    await world.stop()
    disk.broken.clear()
    await world.start()
    await until(lambda: image(world, there).leader == 0)
    found = await world.read("t", 2)
    assert found == {here.partition: [b"%d" % here.partition, b"more"], there.partition: [b"%d" % there.partition]}
    assert await world.read("u", 2) == {0: [], 1: [b"u"]}


@pytest.mark.parametrize("is_controller", [False, True], ids=["another broker's", "the controller's own"])
@in_world(DIRECTORIES, brokers=3)
async def test_other_brokers_lead_the_partitions_of_an_offline_directory(world: World, is_controller: bool) -> None:
    await create(world, "t", partitions=4, replicas=3)
    await until(lambda: all(len(broker.logs.logs) == 4 for broker in world.running.values()))
    one = next(
        number for number, broker in world.running.items() if broker.metadata_loop.is_controller == is_controller
    )
    disk = world.simulation.disk(world.hosts[one])
    lost = log_in(world, one, "/b")
    await write(world, "t", lost.partition, b"1", b"2")
    await world.kill(one)
    disk.broken.add("/b")
    await world.start(one)

    await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
    await until(lambda: world.running[one].partitions.offline_count == 2)
    assert not disk.exists(f"/a/{lost}")
    state = image(world, lost)
    assert state.leader not in {one, NO_LEADER}
    assert one not in state.isr
    whole = [number for number in range(4) if world.running[one].logs.get(TopicPartition("t", number))]
    assert len(whole) == 2
    await until(lambda: all(one in image(world, TopicPartition("t", number)).isr for number in whole))
    await write(world, "t", lost.partition, b"3")

    await world.stop(one)
    disk.broken.clear()
    await world.start(one)
    await until(lambda: one in image(world, lost).isr)
    assert (await world.read("t", 4))[lost.partition] == [b"1", b"2", b"3"]
    assert world.running[one].logs.logs[lost].log_end_offset == 3


@in_world(DIRECTORIES, brokers=3)
async def test_a_broker_that_starts_first_without_the_records_does_not_lead_an_empty_log(world: World) -> None:
    await create(world, "t", partitions=4, replicas=3)
    await until(lambda: all(len(broker.logs.logs) == 4 for broker in world.running.values()))
    lost = log_in(world, 0, "/b")
    await write(world, "t", lost.partition, b"1", b"2")
    for number in (0, 1, 2):
        await world.kill(number)
    world.simulation.disk(world.hosts[0]).broken.add("/b")
    await world.start(0)
    await until(lambda: world.running[0].partitions.offline_count == 2)
    await until(lambda: image(world, lost).leader == NO_LEADER)
    await world.start(1)
    await world.start(2)
    await until(lambda: image(world, lost).leader in {1, 2})
    assert (await world.read("t", 4))[lost.partition] == [b"1", b"2"]
