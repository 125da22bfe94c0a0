"""A broker starts with a log that has lost records: its last segment, or its folder, is missing."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from odradek.broker.cluster.registration.directories import accept_losses
from odradek.broker.log.directories.directory_loading import remove_tree
from odradek.clients.admin.reassignments import ElectionType
from odradek.metadata.nodes import NO_LEADER
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.lost_disks import known
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

pytestmark = pytest.mark.long

T0 = TopicPartition("t", 0)
VALUES = [b"1", b"2", b"3"]
Loss = Callable[[World, int], None]


def remove_last_segment(world: World, number: int) -> None:
    disk = world.simulation.disk(world.hosts[number])
    last = max(name for name in disk.list("/data/t-0") if name.endswith(".log"))
    disk.remove(f"/data/t-0/{last}")


def remove_folder(world: World, number: int) -> None:
    disk = world.simulation.disk(world.hosts[number])
    remove_tree(disk, "/data/t-0")


both_losses = pytest.mark.parametrize("lose", [remove_last_segment, remove_folder])


async def elect_unclean(world: World) -> None:
    async with world.admin() as admin:
        assert await admin.elect_leaders(ElectionType.UNCLEAN, [T0]) == {T0: None}


def refusal(world: World, number: int) -> str:
    with pytest.raises(KafkaError) as error:
        world.running[number].partitions.leader(*T0)
    assert error.value.code == ErrorCode.kafka_storage_error
    return str(error.value)


async def until_refused(world: World, number: int) -> None:
    await until(lambda: world.running[number].partitions.offline_count == 1)
    await until(lambda: image(world, T0).leader == NO_LEADER)


@both_losses
@pytest.mark.parametrize("ends_cleanly", [True, False], ids=["stopped", "killed"])
@in_world(brokers=3)
async def test_the_last_in_sync_replica_does_not_lead_after_losing_records(
    world: World, lose: Loss, ends_cleanly: bool
) -> None:
    await create(world, "t", partitions=1, replicas=3)
    await write(world, "t", 0, *VALUES)
    await asyncio.sleep(70)  # the checkpoints are written
    for number in (0, 1):
        await world.stop(number)
    await (world.stop(2) if ends_cleanly else world.kill(2))
    lose(world, 2)
    for _ in range(2):  # a second start knows it, too
        await world.start(2)
        await until_refused(world, 2)
        reason = refusal(world, 2)
        assert "records before offset 3 are lost; no other replica is in sync" in reason
        assert "odradek partitions elect --unclean --topic t --partition 0" in reason
        assert "odradek metadata accept-loss --metadata URL --broker-id 2 t-0" in reason
        await world.stop(2)
    for number in (2, 0, 1):
        await world.start(number)
    await asyncio.sleep(60)
    assert image(world, T0).leader == NO_LEADER
    await elect_unclean(world)
    await until(lambda: set(image(world, T0).isr) == {0, 1, 2})
    assert world.running[2].partitions.offline_count == 0
    await write(world, "t", 0, b"4")
    assert await world.read("t", 1) == {0: [*VALUES, b"4"]}
    assert world.running[2].logs.logs[T0].log_end_offset == 4
    for number in (0, 1, 2):  # it lacks nothing any more, and nothing is held against it
        await world.stop(number)
    await world.start(2)
    await until(lambda: image(world, T0).leader == 2)
    assert await world.read("t", 1) == {0: [*VALUES, b"4"]}


@both_losses
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_replica_that_lost_records_leads_when_an_operator_accepts_the_loss(
    seed: int, lose: Loss, replicas: int
) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=replicas)
        await write(world, "t", 0, *VALUES)
        for number in reversed(range(replicas)):
            await world.stop(number)
        lose(world, 0)
        await world.start(0)
        await until_refused(world, 0)
        refusal(world, 0)
        with pytest.raises(StorageError, match="broker 0 has no replica of u-7"):
            await accept_losses(world.store(0), 0, [T0, TopicPartition("u", 7)])
        directories = await known(world, 0)
        await accept_losses(world.store(0), 0, [T0])
        await world.stop(0)
        await world.start(0)
        await until(lambda: image(world, T0).leader == 0)
        await write(world, "t", 0, b"new")
        assert await known(world, 0) == directories
        await world.stop(0)
        await world.start(0)
        await until(lambda: image(world, T0).leader == 0)
        assert await world.read("t", 1) == {0: [b"new"]}
        await world.stop(0)
        lose(world, 0)  # again, without an accepted loss
        await world.start(0)
        await until_refused(world, 0)

    World(seed, brokers=replicas).play(scene)


@in_world()
async def test_a_broker_that_cannot_note_an_accepted_loss_does_not_start(world: World) -> None:
    """The next start would find the same loss, and not that it was accepted."""
    await create(world, "t", partitions=1, replicas=1)
    await write(world, "t", 0, *VALUES)
    await world.stop(0)
    remove_last_segment(world, 0)
    await world.start(0)
    await accept_losses(world.store(0), 0, [T0])
    await world.kill(0)
    world.simulation.disk("broker").fail_next("rename", errno.ENOSPC, path_end="checkpoint.tmp")
    with pytest.raises(StorageError, match=r"the checkpoint /data/.* cannot be written"):
        await world.start(0)
    await world.start(0)
    await until(lambda: image(world, T0).leader == 0)


@in_world()
async def test_a_recreated_topic_has_no_lost_records(world: World) -> None:
    await create(world, "t", partitions=1, replicas=1)
    await write(world, "t", 0, *VALUES)
    await asyncio.sleep(70)
    async with world.admin() as admin:
        await admin.delete_topics(["t"])
    await world.kill(0)  # before the checkpoints forget it
    await world.start(0)
    await create(world, "t", partitions=1, replicas=1)
    await write(world, "t", 0, b"new")
    assert await world.read("t", 1) == {0: [b"new"]}
