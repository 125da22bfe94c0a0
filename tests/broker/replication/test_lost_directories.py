"""A broker starts with another directory in place of one of its own: an empty mount point, a new disk, an old one."""

import asyncio
import logging

import pytest

from odradek.metadata.nodes import NO_LEADER
from odradek.model import StorageError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.lost_disks import TWO, forget, keys_in, known, refused, start_refused, swap
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

pytestmark = pytest.mark.long


@in_world()
async def test_a_broker_whose_only_directory_is_missing_starts_when_it_is_back_or_forgotten(world: World) -> None:
    await create(world, "t", partitions=2, replicas=1)
    await write(world, "t", 0, b"0")
    (gone,) = await known(world, 0)
    await world.stop()
    swap(world, 0, "/data", "/unmounted")
    for _ in range(2):
        error = await start_refused(world, 0, "and with it 2 logs, which are offline; no other replica is in sync")
        assert error.startswith(f"the data directory /data (directory.id {gone}) is missing")
        assert "of t-0, t-1; mount the disk and restart this broker" in error
    swap(world, 0, "/unmounted", "/data", "/empty")
    await world.start()
    assert await world.read("t", 2) == {0: [b"0"], 1: []}
    await world.stop()
    swap(world, 0, "/data", "/unmounted")
    await start_refused(world, 0, "is missing")
    with pytest.raises(StorageError, match="broker 0 has no data directory nonsense; it has "):
        await forget(world, 0, gone, "nonsense")
    assert await forget(world, 0, gone) == ["/data"]
    await world.start()
    assert await world.read("t", 2) == {0: [], 1: []}
    assert len(await known(world, 0)) == 1


@in_world(TWO, brokers=2)
async def test_a_disk_can_be_mounted_after_its_logs_were_copied(world: World) -> None:
    """They were copied to its empty mount point, though the other directory has fewer logs: there are no duplicates."""
    await create(world, "u", partitions=8, replicas=2)
    moved = {key: [1] for key in keys_in(world, 0, "/a", "u")}
    await create(world, "t", partitions=4, replicas=2)
    async with world.admin() as admin:
        await admin.alter_partition_reassignments(moved)
    await until(lambda: not keys_in(world, 0, "/a", "u"))
    there = keys_in(world, 0, "/b")
    await world.stop(0)
    swap(world, 0, "/b", "/unmounted")
    await world.start(0)
    await until(lambda: all(len(image(world, key).isr) == 2 for key in there))
    assert len(keys_in(world, 0, "/b", "u")) == 4
    assert keys_in(world, 0, "/b") == there
    for key in there:
        await write(world, "t", key.partition, b"1")
    await world.stop(0)
    swap(world, 0, "/unmounted", "/b", "/empty")
    await world.start(0)
    await until(lambda: all(len(image(world, key).isr) == 2 for key in there))
    await world.stop(1)
    found = await world.read("t", 4)
    assert [found[key.partition] for key in there] == [[b"1"]] * len(there)


@in_world({"log.dirs": "/a,/b,/c"})
async def test_one_of_two_missing_directories_is_used_when_it_is_back(world: World) -> None:
    await create(world, "t", partitions=3, replicas=1)
    (here,), (there,) = keys_in(world, 0, "/b"), keys_in(world, 0, "/c")
    await write(world, "t", here.partition, b"1")
    await world.stop()
    swap(world, 0, "/b", "/dead-b")
    swap(world, 0, "/c", "/dead-c")
    await world.start()
    refused(world, 0, here)
    await world.stop()
    swap(world, 0, "/dead-b", "/b", "/empty")
    await world.start()
    await until(lambda: image(world, here).leader == 0)
    refused(world, 0, there)
    assert (await world.read("t", [here.partition]))[here.partition] == [b"1"]


@in_world(TWO)
async def test_a_recreated_topic_begins_at_offset_0(world: World) -> None:
    await create(world, "t", partitions=2, replicas=1)
    (there,) = keys_in(world, 0, "/b")
    await write(world, "t", there.partition, b"0")
    await world.stop()
    swap(world, 0, "/b", "/unmounted")
    await world.start()
    await until(lambda: image(world, there).leader == NO_LEADER)
    async with world.admin() as admin:
        await admin.delete_topics(["t"])
    await create(world, "t", partitions=2, replicas=1)
    await write(world, "t", there.partition, b"new")
    assert (await world.read("t", 2))[there.partition] == [b"new"]
    await world.stop()
    swap(world, 0, "/unmounted", "/b", "/empty")
    await world.start()
    assert (await world.read("t", 2))[there.partition] == [b"new"], "the returned disk has the topic's predecessor"


@in_world(TWO, brokers=3)
async def test_replicas_that_are_deleted_while_their_directory_is_dead_are_gone_when_it_is_back(world: World) -> None:
    for topic in ("moved", "deleted"):
        await create(world, topic, partitions=2, replicas=3)
        for number in range(2):
            await write(world, topic, number, b"1")
    (moved,), (deleted,) = keys_in(world, 2, "/b", "moved"), keys_in(world, 2, "/b", "deleted")
    disk = world.simulation.disk(world.hosts[2])
    disk.broken.add("/b")
    for key in (moved, deleted):
        await write(world, key.topic, key.partition, b"2")
    await until(lambda: all(2 not in image(world, key).isr for key in (moved, deleted)))
    async with world.admin() as admin:
        await admin.alter_partition_reassignments({moved: [0, 1]})
        await admin.delete_topics(["deleted"])
    await until(lambda: 2 not in image(world, moved).replicas and "deleted" not in world.running[0].image.topics)
    disk.broken.discard("/b")
    await world.restart(2)
    await asyncio.sleep(300)
    assert [name for name in disk.list("/b") if disk.is_directory(f"/b/{name}")] == []


@in_world(brokers=3)
async def test_an_emptied_broker_that_starts_first_does_not_lead(world: World) -> None:
    await create(world, "t", partitions=2, replicas=3)
    for number in range(2):
        await write(world, "t", number, b"1", b"2")
    for number in (0, 1, 2):
        await world.kill(number)
    swap(world, 0, "/data", "/dead")
    for attempt in range(2):  # restarted while no other replica has the records, it still knows that it lacks them
        await world.start(0)
        await asyncio.sleep(30)
        assert {image(world, TopicPartition("t", number)).leader for number in (0, 1)} == {NO_LEADER}
        if not attempt:
            await world.kill(0)
    await world.start(1)
    await world.start(2)
    await until(lambda: all(len(image(world, TopicPartition("t", number)).isr) == 3 for number in (0, 1)))
    assert await world.read("t", 2) == {0: [b"1", b"2"], 1: [b"1", b"2"]}
    assert world.running[0].partitions.offline_count == 0


@pytest.mark.parametrize("is_settled", [False, True], ids=["before the copies count", "after that"])
@in_world(TWO, brokers=3)
async def test_a_broker_whose_replaced_disk_is_back_does_not_start_while_only_the_replacement_has_all_records(
    world: World, is_settled: bool
) -> None:
    await create(world, "t", partitions=4, replicas=3)
    lost = keys_in(world, 0, "/b")
    for key in lost:
        await write(world, "t", key.partition, b"1")
    await world.stop(0)
    swap(world, 0, "/b", "/old")
    await world.start(0)
    await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
    if is_settled:
        await world.stop(0)
        await world.start(0)
        await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
    for key in lost:
        await write(world, "t", key.partition, b"2")
    for number in (1, 2, 0):
        await world.stop(number)
    swap(world, 0, "/old", "/b", "/newer")
    error = await start_refused(world, 0, "is back after it was replaced, and /b .*, which may have newer")
    assert f"newer records of {', '.join(map(str, lost))}, is missing" in error
    swap(world, 0, "/newer", "/b", "/older")
    for number in range(3):
        await world.start(number)
    await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
    found = await world.read("t", 4)
    assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)


@pytest.mark.parametrize("brokers", [2, 3])
def test_logs_survive_a_start_of_all_brokers_before_their_disks_are_mounted(seed: int, brokers: int) -> None:
    """After a power cut of all brokers there is no replica to copy from, and returned logs are neither replaced nor put
    aside.
    """

    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=brokers)
        for number in (0, 1):
            await write(world, "t", number, b"1", b"2")
        for number in range(brokers):
            await world.kill(number)
            swap(world, number, "/data", "/unmounted")
        starts = [world.start(number) for number in range(brokers)]
        results = await asyncio.gather(*starts, return_exceptions=True)
        refused_starts = [each for each in results if isinstance(each, BaseException)]
        assert all("no other replica is in sync of t-0, t-1" in str(each) for each in refused_starts)
        assert len(refused_starts) == 1, "the last in-sync replica"
        await asyncio.sleep(30)
        for number in range(brokers):
            if number in world.running:
                await world.stop(number)
            swap(world, number, "/unmounted", "/data", "/empty")
        await asyncio.gather(*(world.start(number) for number in range(brokers)))
        await until(lambda: all(len(image(world, TopicPartition("t", number)).isr) == brokers for number in (0, 1)))
        assert await world.read("t", 2) == {0: [b"1", b"2"], 1: [b"1", b"2"]}
        for number in range(brokers):
            names = world.simulation.disk(world.hosts[number]).list("/data")
            assert not any(name.endswith("-stray") for name in names)

    World(seed, brokers=brokers).play(scene)


def test_an_added_directory_has_no_missing_logs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await write(world, "t", 0, b"0")
        await world.stop()
        world._config["log.dirs"] = "/data,/more"
        await world.start()
        await create(world, "u", partitions=1, replicas=1)
        assert keys_in(world, 0, "/more", "u")
        assert await world.read("t", 1) == {0: [b"0"]}
        assert sorted(each.path for each in (await known(world, 0)).values()) == ["/data", "/more"]

    with caplog.at_level(logging.ERROR, "odradek"):
        World(seed).play(scene)
    assert "is missing" not in caplog.text
