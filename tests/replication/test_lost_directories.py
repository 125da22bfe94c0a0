"""A broker starts with another directory in place of one of its own: an empty mount point, a new disk, an old one."""

import asyncio
import logging

import pytest
from lost_disks import TWO, create, fill, image, keys_in, known, refused, swap

from odradek.broker.cluster.directories import forget_directories
from odradek.clients import Admin
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER
from odradek.model import KafkaError, StorageError, TopicPartition
from odradek.testing.world import World, until


def test_an_empty_mount_point_does_not_recreate_logs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (here,), (there,) = keys_in(world, 0, "/a"), keys_in(world, 0, "/b")
        for key in (here, there):
            await fill(world, "t", key.partition, b"%d" % key.partition)
        directory_id = next(key for key, each in (await known(world, 0)).items() if each.path == "/b")
        await world.stop()
        swap(world, 0, "/b", "/unmounted")

        for attempt in range(2):  # the second start finds a directory with a name in it, and knows better
            caplog.clear()
            await world.start()
            await until(lambda: image(world, there).leader == NO_LEADER)
            refused(world, 0, there)
            (line,) = [each.getMessage() for each in caplog.records if "is missing, and" in each.getMessage()]
            assert f"data directory /b (directory.id {directory_id}) is missing, and with it 1 logs" in line
            assert f"1 without another in-sync replica are offline ({there})" in line
            assert f"forget-directory --metadata URL --broker-id 0 {directory_id}" in line
            await fill(world, "t", here.partition, b"more")
            await create(world, f"u{attempt}", partitions=1, replicas=1)
            await world.stop()

        swap(world, 0, "/unmounted", "/b", "/empty")
        await world.start()
        await until(lambda: image(world, there).leader == 0)
        assert (await world.read("t", 2))[there.partition] == [b"%d" % there.partition]

    with caplog.at_level(logging.ERROR, "odradek"):
        World(seed, TWO).play(scene)


def test_new_logs_are_not_created_where_a_missing_disk_is_expected(seed: int) -> None:
    """It would be hidden when that is mounted again."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        await world.stop()
        swap(world, 0, "/b", "/unmounted")
        await world.start()
        await create(world, "u", partitions=4, replicas=1)
        assert len(keys_in(world, 0, "/a", "u")) == 4

    World(seed, TWO).play(scene)


def test_records_written_to_the_replacement_are_missing_when_the_old_disk_returns(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"1")
        await world.stop()
        swap(world, 0, "/data", "/unmounted")
        await world.start()
        await create(world, "u", partitions=1, replicas=1)
        await fill(world, "u", 0, b"2")
        await world.stop()
        swap(world, 0, "/unmounted", "/data", "/empty")
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == 0)
        refused(world, 0, TopicPartition("u", 0))
        assert await world.read("t", 1) == {0: [b"1"]}

    World(seed).play(scene)


def test_a_missing_only_directory_is_reported_until_it_is_forgotten(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        await fill(world, "t", 0, b"0")
        await world.stop()
        swap(world, 0, "/data", "/unmounted")
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == NO_LEADER)
        await asyncio.sleep(700)  # in which preferred leaders are elected twice
        for number in range(2):
            refused(world, 0, TopicPartition("t", number))
            state = image(world, TopicPartition("t", number))
            assert (state.leader, state.leader_epoch) == (NO_LEADER, 1), "who can't use his log is not elected"
        await create(world, "u", partitions=1, replicas=1)
        await fill(world, "u", 0, b"new")
        (gone,) = (key for key, each in (await known(world, 0)).items() if each.partitions is not None)
        with pytest.raises(StorageError, match="broker 0 has no data directory nonsense; it has "):
            await forget_directories(world.store(0), 0, [gone, "nonsense"])
        assert await forget_directories(world.store(0), 0, [gone]) == ["/data"]
        await world.stop()
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == 0)
        assert await world.read("t", 2) == {0: [], 1: []}
        assert await world.read("u", 1) == {0: [b"new"]}
        assert len(await known(world, 0)) == 1

    World(seed).play(scene)


def test_a_recreated_topic_begins_at_offset_0(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"0")
        await world.stop()
        swap(world, 0, "/data", "/unmounted")
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == NO_LEADER)
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.delete_topics(["t"])
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"new")
        assert await world.read("t", 1) == {0: [b"new"]}

    World(seed).play(scene)


@pytest.mark.parametrize("is_controller", [False, True], ids=["another broker's", "the controller's own"])
@pytest.mark.parametrize("ends_cleanly", [False, True], ids=["killed", "stopped"])
def test_a_new_disk_is_filled_by_replication(seed: int, is_controller: bool, ends_cleanly: bool) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=4, replicas=3)
        one = next(
            number for number, broker in world.running.items() if broker.metadata_loop.is_controller == is_controller
        )
        lost = keys_in(world, one, "/b")
        for key in lost:
            await fill(world, "t", key.partition, b"1", b"2")
        await (world.stop(one) if ends_cleanly else world.kill(one))
        swap(world, one, "/b", "/dead")
        await world.start(one)
        await until(lambda: all(one in image(world, key).isr for key in lost))
        assert keys_in(world, one, "/b") == lost
        assert world.running[one].partitions.offline_count == 0
        assert [world.running[one].logs.logs[key].log_end_offset for key in lost] == [2, 2]
        for key in lost:
            await fill(world, "t", key.partition, b"3")
            assert (await world.read("t", 4))[key.partition] == [b"1", b"2", b"3"]
        await world.stop(one)
        await world.start(one)
        assert sorted(each.path for each in (await known(world, one)).values()) == ["/a", "/b"]

    World(seed, TWO, brokers=3).play(scene)


def test_an_emptied_broker_that_starts_first_does_not_lead(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=3)
        for number in range(2):
            await fill(world, "t", number, b"1", b"2")
        for number in (0, 1, 2):
            await world.kill(number)
        swap(world, 0, "/data", "/dead")
        for attempt in range(2):  # restarted while no other replica has the records, it still knows that it lacks them
            await world.start(0)
            await until(lambda: world.running[0].partitions.offline_count == 2)
            await until(lambda: all(image(world, TopicPartition("t", number)).leader == NO_LEADER for number in (0, 1)))
            if not attempt:
                await world.kill(0)
        await world.start(1)
        await world.start(2)
        await until(lambda: all(len(image(world, TopicPartition("t", number)).isr) == 3 for number in (0, 1)))
        assert await world.read("t", 2) == {0: [b"1", b"2"], 1: [b"1", b"2"]}
        assert world.running[0].partitions.offline_count == 0

    World(seed, brokers=3).play(scene)


@pytest.mark.parametrize("is_settled", [False, True], ids=["before the copies count", "after that"])
def test_a_broker_with_a_returned_old_disk_does_not_lead_its_old_logs(seed: int, is_settled: bool) -> None:
    """Its logs were copied to the replacement and continued there: they are used only if other in-sync replicas have
    all
    records.
    """

    async def scene(world: World) -> None:
        await create(world, "t", partitions=4, replicas=3)
        lost = keys_in(world, 0, "/b")
        for key in lost:
            await fill(world, "t", key.partition, b"1")
        await world.stop(0)
        swap(world, 0, "/b", "/old")
        await world.start(0)
        await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
        if is_settled:
            await world.stop(0)
            await world.start(0)
            await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
        for key in lost:
            await fill(world, "t", key.partition, b"2")
        for number in (1, 2, 0):
            await world.stop(number)
        swap(world, 0, "/old", "/b", "/newer")
        await world.start(0)
        await until(lambda: world.running[0].partitions.offline_count == len(lost))
        for key in lost:
            with pytest.raises(KafkaError):
                world.running[0].partitions.leader(*key)
        await world.stop(0)
        swap(world, 0, "/newer", "/b", "/older")
        for number in range(3):
            await world.start(number)
        await until(lambda: all(len(image(world, key).isr) == 3 for key in lost))
        found = await world.read("t", 4)
        assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)

    World(seed, TWO, brokers=3).play(scene)


@pytest.mark.parametrize("brokers", [2, 3])
def test_logs_survive_a_start_of_all_brokers_before_their_disks_are_mounted(seed: int, brokers: int) -> None:
    """After a power cut of all brokers there is no replica to copy from, and returned logs are neither replaced nor put
    aside.
    """

    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=brokers)
        for number in (0, 1):
            await fill(world, "t", number, b"1", b"2")
        for number in range(brokers):
            await world.kill(number)
            swap(world, number, "/data", "/unmounted")
        await asyncio.gather(*(world.start(number) for number in range(brokers)))
        await asyncio.sleep(30)
        for number in range(brokers):
            await world.stop(number)
            swap(world, number, "/unmounted", "/data", "/empty")
        for attempt in range(2):
            await asyncio.gather(*(world.start(number) for number in range(brokers)))
            await asyncio.sleep(30)
            for number in range(brokers):
                names = world.simulation.disk(world.hosts[number]).list("/data")
                assert {"t-0", "t-1"} <= set(names)
                assert not any(name.endswith("-stray") for name in names)
            if attempt == 0:
                # The last in-sync replica may have continued without its disk: an operator has to say that it did not.
                for number in range(brokers):
                    gone = [key for key, each in (await known(world, number)).items() if each.partitions is not None]
                    here = world.running[number].logs.directories.paths_by_id
                    await forget_directories(world.store(number), number, [key for key in gone if key not in here])
                for number in range(brokers):
                    await world.stop(number)
        await until(lambda: all(len(image(world, TopicPartition("t", number)).isr) == brokers for number in (0, 1)))
        assert await world.read("t", 2) == {0: [b"1", b"2"], 1: [b"1", b"2"]}

    World(seed, brokers=brokers).play(scene)


def test_a_topic_recreated_while_the_disk_was_missing_has_no_log_on_the_returned_disk(seed: int) -> None:
    """On the disk is a log of the same name, but it is of the topic before."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"old")
        await world.stop()
        swap(world, 0, "/data", "/unmounted")
        await world.start()
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.delete_topics(["t"])
        await until(lambda: "t" not in world.running[0].image.topics)
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"new")
        await world.stop()
        swap(world, 0, "/unmounted", "/data", "/newer")
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == NO_LEADER)
        refused(world, 0, TopicPartition("t", 0))
        await world.stop()
        swap(world, 0, "/newer", "/data", "/older")
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == 0)
        assert await world.read("t", 1) == {0: [b"new"]}

    World(seed).play(scene)


def test_an_added_directory_has_no_missing_logs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"0")
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


def test_a_directory_removed_from_the_configuration_is_missing(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (there,) = keys_in(world, 0, "/b")
        await fill(world, "t", there.partition, b"1")
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

    World(seed, TWO).play(scene)


def test_a_tree_without_directories_is_that_of_an_earlier_release(seed: int) -> None:
    """The broker's present directories count then; an empty one did not exist in that release."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (here,), (there,) = keys_in(world, 0, "/a"), keys_in(world, 0, "/b")
        for key in (here, there):
            await fill(world, "t", key.partition, b"%d" % key.partition)
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

    World(seed, TWO).play(scene)
