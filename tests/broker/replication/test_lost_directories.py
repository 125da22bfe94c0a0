"""A broker starts with another directory in place of one of its own: an empty mount point, a new disk, an old one."""

import asyncio
import logging

import pytest

from odradek.clients.admin import NewTopic
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER
from odradek.model import StorageError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.lost_disks import TWO, forget, keys_in, known, refused, start_refused, swap
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

pytestmark = pytest.mark.long


def test_an_empty_mount_point_does_not_recreate_logs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (here,), (there,) = keys_in(world, 0, "/a"), keys_in(world, 0, "/b")
        for key in (here, there):
            await write(world, "t", key.partition, b"%d" % key.partition)
        directory_id = next(key for key, each in (await known(world, 0)).items() if each.path == "/b")
        await world.stop()
        swap(world, 0, "/b", "/unmounted")

        for attempt in range(2):
            caplog.clear()
            await world.start()
            await until(lambda: image(world, there).leader == NO_LEADER)
            refused(world, 0, there)
            (line,) = [each.getMessage() for each in caplog.records if "is missing, and" in each.getMessage()]
            assert f"data directory /b (directory.id {directory_id}) is missing, and with it 1 logs" in line
            assert f"no other replica is in sync of {there};" in line
            assert f"forget-directory --metadata URL --broker-id 0 {directory_id}" in line
            assert list(world.running[0].logs.directories.offline) == ["/b"]
            await write(world, "t", here.partition, b"more")
            await create(world, f"u{attempt}", partitions=1, replicas=1)
            await world.stop()

        swap(world, 0, "/unmounted", "/b", "/empty")
        await world.start()
        await until(lambda: image(world, there).leader == 0)
        assert (await world.read("t", 2))[there.partition] == [b"%d" % there.partition]

    with caplog.at_level(logging.ERROR, "odradek"):
        World(seed, TWO).play(scene)


@in_world(TWO)
async def test_new_logs_are_not_created_where_a_missing_disk_is_expected(world: World) -> None:
    """It would be hidden when that is mounted again."""
    await create(world, "t", partitions=2, replicas=1)
    await world.stop()
    swap(world, 0, "/b", "/unmounted")
    await world.start()
    await create(world, "u", partitions=4, replicas=1)
    assert len(keys_in(world, 0, "/a", "u")) == 4


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


@pytest.mark.parametrize("is_configured", [False, True], ids=["removed from log.dirs", "replaced"])
@in_world(TWO, brokers=2)
async def test_records_that_another_replica_has_survive_a_forgotten_directory(
    world: World, is_configured: bool
) -> None:
    """The other in-sync replica is down when the broker starts without the directory."""
    await create(world, "t", partitions=4, replicas=2)
    async with world.admin() as admin:
        await admin.create_topics([NewTopic(name="alone", assignments={0: [0], 1: [0]})])
    await until(lambda: len(world.running[0].logs) == 6)
    lost = keys_in(world, 0, "/b")
    (alone,) = keys_in(world, 0, "/b", "alone")
    for key in lost:
        await write(world, "t", key.partition, b"1", b"2")
    (gone,) = [key for key, each in (await known(world, 0)).items() if each.path == "/b"]
    await world.kill(0)
    await world.kill(1)
    swap(world, 0, "/b", "/dead")
    if not is_configured:
        world._config["log.dirs"] = "/a"
    await forget(world, 0, gone)
    await world.start(0)
    await until(lambda: image(world, alone).leader == 0)
    await asyncio.sleep(30)
    assert {image(world, key).leader for key in lost} == {NO_LEADER}
    await world.kill(0)
    await world.start(0)
    await asyncio.sleep(30)
    assert {image(world, key).leader for key in lost} == {NO_LEADER}, "a second start knows it, too"
    world._config["log.dirs"] = "/a,/b"
    await world.start(1)
    await until(lambda: all(len(image(world, key).isr) == 2 for key in lost))
    found = await world.read("t", 4)
    assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)
    assert world.running[0].partitions.offline_count == 0


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


@pytest.mark.parametrize("is_controller", [False, True], ids=["another broker's", "the controller's own"])
@pytest.mark.parametrize("ends_cleanly", [False, True], ids=["killed", "stopped"])
@in_world(TWO, brokers=3)
async def test_a_new_disk_is_filled_by_replication(world: World, is_controller: bool, ends_cleanly: bool) -> None:
    await create(world, "t", partitions=4, replicas=3)
    one = next(
        number for number, broker in world.running.items() if broker.metadata_loop.is_controller == is_controller
    )
    lost = keys_in(world, one, "/b")
    for key in lost:
        await write(world, "t", key.partition, b"1", b"2")
    await (world.stop(one) if ends_cleanly else world.kill(one))
    swap(world, one, "/b", "/dead")
    await world.start(one)
    await until(lambda: all(one in image(world, key).isr for key in lost))
    assert keys_in(world, one, "/b") == lost
    assert world.running[one].partitions.offline_count == 0
    assert [world.running[one].logs.logs[key].log_end_offset for key in lost] == [2, 2]
    for key in lost:
        await write(world, "t", key.partition, b"3")
        assert (await world.read("t", 4))[key.partition] == [b"1", b"2", b"3"]
    await world.stop(one)
    await world.start(one)
    assert sorted(each.path for each in (await known(world, one)).values()) == ["/a", "/b"]


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


@in_world(TWO)
async def test_a_directory_removed_from_the_configuration_is_missing(world: World) -> None:
    await create(world, "t", partitions=2, replicas=1)
    (there,) = keys_in(world, 0, "/b")
    await write(world, "t", there.partition, b"1")
    await world.stop()
    world._config["log.dirs"] = "/a"
    await world.start()
    await until(lambda: image(world, there).leader == NO_LEADER)
    refused(world, 0, there)
    await world.stop()
    world._config["log.dirs"] = "/b,/a"
    await world.start()
    await until(lambda: image(world, there).leader == 0)
    assert (await world.read("t", 2))[there.partition] == [b"1"]


@in_world(TWO)
async def test_a_tree_without_directories_is_that_of_an_earlier_release(world: World) -> None:
    """The broker's present directories count then; an empty one did not exist in that release."""
    await create(world, "t", partitions=2, replicas=1)
    (here,), (there,) = keys_in(world, 0, "/a"), keys_in(world, 0, "/b")
    for key in (here, there):
        await write(world, "t", key.partition, b"%d" % key.partition)
    await world.store(0).delete(paths.broker_directories(0))
    await world.stop()
    await world.start()
    assert len(await world.read("t", 2)) == 2
    await world.store(0).delete(paths.broker_directories(0))
    await world.stop()
    swap(world, 0, "/b", "/unmounted")
    for _ in range(2):
        await world.start()
        await until(lambda: image(world, there).leader == NO_LEADER)
        refused(world, 0, there)
        assert image(world, here).leader == 0
        await world.stop()
    swap(world, 0, "/unmounted", "/b", "/empty")
    await world.start()
    await until(lambda: image(world, there).leader == 0)
