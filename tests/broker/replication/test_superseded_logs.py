"""An old disk returns in place of its replacement, while the replicas with newer records are down."""

import asyncio
import json
from typing import Any

import pytest

from odradek.broker.log.directories import log_manager
from odradek.broker.log.directories.directory_loading import FoundLog, OpenedLog
from odradek.broker.log.segments.open_files import FilePool
from odradek.clients.admin import NewTopic
from odradek.metadata import paths, tree_watchers
from odradek.metadata.nodes import NO_LEADER, KnownDirectory
from odradek.metadata.store import ANY_VERSION
from odradek.model import ConfigurationError, StorageError, TopicPartition
from odradek.simulation.virtual.disk import PowerCutError
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from odradek.testing import Survival
from tests.world.lost_disks import TWO, forget, go_on_without, keys_in, known, refused, start_refused, swap
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

pytestmark = pytest.mark.long

KEY = TopicPartition("t", 0)


@in_world(TWO)
async def test_a_broker_with_an_old_disk_does_not_start_while_the_newer_one_is_offline(world: World) -> None:
    await create(world, "t", partitions=2, replicas=1)
    (key,) = keys_in(world, 0, "/b")
    await go_on_without(world, "/b", key)
    disk = world.simulation.disk("broker")
    disk.broken.add("/b")
    world._config["log.dirs"] = "/a,/b,/old"
    error = await start_refused(world, 0, f"which may have newer records of {key}, is missing, and no other")
    assert error.startswith("the data directory /old (directory.id ")
    disk.broken.clear()
    world._config["log.dirs"] = "/a,/b"
    await world.start()
    await until(lambda: image(world, key).leader == 0)
    assert (await world.read("t", 2))[key.partition] == [b"2"]


@pytest.mark.parametrize("can_be_opened", [False, True])
@in_world()
async def test_an_old_log_is_used_when_the_newer_directory_is_forgotten(
    world: World, can_be_opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names the command. It does not depend on whether the old log can be opened."""

    def open_nothing(pool: FilePool, found: FoundLog, *arguments: Any) -> OpenedLog:
        return OpenedLog(found=found, log=None, topic_id=None, error=StorageError("too many open files"))

    await create(world, "t", partitions=1, replicas=1)
    await go_on_without(world, "/data", KEY)
    (newer,) = await known(world, 0)
    swap(world, 0, "/old", "/data", "/newer")
    with monkeypatch.context() as patch:
        if not can_be_opened:
            patch.setattr(log_manager, "open_found", open_nothing)
        for _ in range(2):
            error = await start_refused(world, 0, f"replaced, and /data .directory.id {newer}., which may have newer")
    await forget(world, 0, *error.partition("--broker-id 0 ")[2].split())
    await world.start()
    assert await world.read("t", 1) == {0: [b"1"]}


@in_world(brokers=2, noticed_at_once=False)
async def test_records_that_another_replica_has_survive_when_an_old_log_is_used(world: World) -> None:
    """The newer directory is forgotten, and the broker starts before the other in-sync replica."""
    await create(world, "t", partitions=1, replicas=2)
    async with world.admin() as admin:
        await admin.create_topics([NewTopic(name="alone", assignments={0: [0]})])
    (old,) = await known(world, 0)
    await write(world, "alone", 0, b"1")
    await write(world, "t", 0, b"1")
    await world.stop(0)
    swap(world, 0, "/data", "/old")
    await forget(world, 0, old)
    await world.start(0)
    await until(lambda: len(image(world, KEY).isr) == 2)
    await write(world, "alone", 0, b"2")
    await write(world, "t", 0, b"2")
    await world.kill(1)
    await world.kill(0)
    swap(world, 0, "/old", "/data", "/newer")
    error = await start_refused(world, 0, "may have newer records of alone-0, is missing, and no other")
    await forget(world, 0, *error.partition("--broker-id 0 ")[2].split())
    await world.start(0)
    await until(lambda: image(world, TopicPartition("alone", 0)).leader == 0)
    await asyncio.sleep(30)
    assert image(world, KEY).leader == NO_LEADER
    await world.start(1)
    await until(lambda: len(image(world, KEY).isr) == 2)
    assert await world.read("t", 1) == {0: [b"1", b"2"]}
    assert await world.read("alone", 1) == {0: [b"1"]}, "given up"


@in_world()
async def test_an_old_directory_beside_the_one_that_replaced_it_is_refused(world: World) -> None:
    await create(world, "t", partitions=1, replicas=1)
    await go_on_without(world, "/data", KEY)
    world._config["log.dirs"] = "/data,/old"
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"was replaced by another, which has t-0, too; leave it out of log\.dirs"
        ):
            await world.start()
    world._config["log.dirs"] = "/data"
    await world.start()
    assert await world.read("t", 1) == {0: [b"2"]}


@in_world()
async def test_directories_that_were_missing_before_an_upgrade_have_old_logs(world: World) -> None:
    """The earlier release did not store which of two went missing first."""
    await create(world, "t", partitions=1, replicas=1)
    await write(world, "t", 0, b"1")
    (here,) = await known(world, 0)
    await world.stop()
    store = MemoryStore(world.tree)
    directories = {here: {"path": "/data", "partitions": {}}, "gone": {"path": "/more", "partitions": {"t": [0]}}}
    node = json.dumps({"version": 1, "directories": directories}).encode()
    await store.set(paths.broker_directories(0), node, ANY_VERSION)
    await store.close()
    await start_refused(
        world, 0, "replaced, and /more .directory.id gone., which may have newer records of t-0, is missing"
    )
    assert await forget(world, 0, "gone") == ["/more"]
    await world.start()
    assert await world.read("t", 1) == {0: [b"1"]}
    assert await known(world, 0) == {here: KnownDirectory(path="/data")}


@in_world(brokers=2)
async def test_a_directory_is_old_if_a_returned_one_was_used_while_it_was_missing(world: World) -> None:
    """Of the replacement the broker still misses a log that is in no other directory."""
    await create(world, "t", partitions=1, replicas=2)
    await world.stop(0)
    swap(world, 0, "/data", "/old")
    await world.start(0)
    await until(lambda: len(image(world, KEY).isr) == 2)
    async with world.admin() as admin:
        await admin.create_topics([NewTopic(name="alone", assignments={0: [0]})])
    await write(world, "alone", 0, b"1")
    await world.stop(0)
    swap(world, 0, "/old", "/data", "/newer")
    await world.start(0)
    refused(world, 0, TopicPartition("alone", 0))
    await until(lambda: len(image(world, KEY).isr) == 2)
    await world.stop(1)
    await write(world, "t", 0, b"2")
    await world.stop(0)
    swap(world, 0, "/newer", "/data", "/older")
    await start_refused(world, 0, "which may have newer records of alone-0, t-0, is missing")
    swap(world, 0, "/older", "/data", "/newer")
    await world.start(0)
    assert await world.read("t", 1) == {0: [b"2"]}


@pytest.mark.parametrize("is_back", [False, True], ids=["missing", "old"])
@in_world()
async def test_an_unreadable_topic_does_not_mean_that_no_log_is_missing(world: World, is_back: bool) -> None:
    await create(world, "t", partitions=1, replicas=1)
    await go_on_without(world, "/data", KEY)
    if is_back:
        swap(world, 0, "/old", "/data", "/newer")
    else:
        swap(world, 0, "/data", "/newer")
    store = MemoryStore(world.tree)
    node = await store.get(paths.topic("t"))
    assert node is not None
    await store.set(paths.topic("t"), b"broken", ANY_VERSION)
    if is_back:
        await start_refused(world, 0, "which may have newer records of t-0, is missing")
    else:
        await world.start()
        await world.stop()
    await store.set(paths.topic("t"), node.data, ANY_VERSION)
    await store.close()
    if not is_back:
        await world.start()
        refused(world, 0, KEY)
        await world.stop()
    swap(world, 0, "/newer", "/data", "/older")
    await world.start()
    assert await world.read("t", 1) == {0: [b"2"]}


@in_world(TWO)
async def test_disks_that_fail_in_turns_have_no_old_logs(world: World) -> None:
    """Unlike a missing directory, one with a failed disk is not replaced."""
    await create(world, "t", partitions=2, replicas=1)
    disk = world.simulation.disk("broker")
    for broken in ("/a", "/b", "/a"):
        (other,) = {"/a", "/b"} - {broken}
        await world.stop()
        disk.broken.clear()
        disk.broken.add(broken)
        await world.start()
        (key,) = keys_in(world, 0, other)
        await until(lambda: image(world, key).leader == 0)  # noqa: B023
        assert world.running[0].partitions.offline_count == 1


@pytest.mark.parametrize("operations", range(10, 17))
@in_world({"log.dirs": "/b,/a"})
async def test_an_interrupted_first_start_after_an_upgrade_recreates_no_logs(world: World, operations: int) -> None:
    """The tree had no word of directories; the power goes while the broker makes a new one its own."""
    await create(world, "t", partitions=2, replicas=1)
    (key,) = keys_in(world, 0, "/b")
    await write(world, "t", key.partition, b"1")
    await world.store(0).delete(paths.broker_directories(0))
    await world.stop()
    swap(world, 0, "/b", "/unmounted")
    disk = world.simulation.disk("broker")
    disk.cut_power_at(disk.operations + operations)
    try:
        await world.start()
    except PowerCutError:
        pass
    else:
        await world.kill()
    world.simulation.cut_power("broker", Survival.KEEP)
    await world.start()
    await until(lambda: image(world, key).leader == NO_LEADER)
    refused(world, 0, key)
    await world.stop()
    swap(world, 0, "/unmounted", "/b", "/empty")
    await world.start()
    await until(lambda: image(world, key).leader == 0)
    assert (await world.read("t", 2))[key.partition] == [b"1"]


@in_world()
async def test_a_broker_whose_id_is_taken_does_not_change_the_stored_directories(world: World) -> None:
    await create(world, "t", partitions=1, replicas=1)
    before = await known(world, 0)
    world.hosts.append("intruder")
    world._config["broker.id"] = "0"
    with pytest.raises(ConfigurationError, match="the broker id 0 is taken by the broker at broker:9092"):
        await world.start(1)
    assert await known(world, 0) == before


@in_world()
async def test_an_unreadable_partition_state_does_not_mean_an_empty_partition(world: World) -> None:
    await create(world, "t", partitions=1, replicas=1)
    await write(world, "t", 0, b"1")
    key = TopicPartition("t", 0)
    store = MemoryStore(world.tree)
    path = paths.partition_state(key)
    node = await store.get(path)
    assert node is not None
    await world.stop()
    swap(world, 0, "/data", "/unmounted")
    await store.set(path, b"broken")
    await start_refused(world, 0, "no other replica is in sync of t-0")
    await store.set(path, node.data)
    await start_refused(world, 0, "no other replica is in sync of t-0")
    swap(world, 0, "/unmounted", "/data", "/empty")
    await world.start()
    await until(lambda: image(world, key).leader == 0)
    assert await world.read("t", 1) == {0: [b"1"]}
    await store.close()


@in_world(brokers=3, noticed_at_once=False)
async def test_a_busy_controller_elects_no_leader_from_its_old_image(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who were in sync are back before it looks who lives, so that nothing seems to have changed."""
    can_look, read_brokers = asyncio.Event(), tree_watchers.read_brokers

    async def read_when_it_can(*arguments: Any) -> Any:
        await can_look.wait()
        return await read_brokers(*arguments)

    await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
    old, other = (number for number, broker in world.running.items() if not broker.metadata_loop.is_controller)
    async with world.admin() as admin:
        await admin.create_topics([NewTopic(name="t", assignments={number: [old, other] for number in range(2)})])
    await until(lambda: all(len(world.running[number].logs) == 2 for number in (old, other)))
    lost = keys_in(world, old, "/data")
    for key in lost:
        await write(world, "t", key.partition, b"1")
    await world.stop(old)
    swap(world, old, "/data", "/old")
    await world.start(old)
    await until(lambda: all(len(image(world, key).isr) == 2 for key in lost))
    await until(lambda: all(image(world, key).leader == old for key in lost), within_s=1000)
    for key in lost:
        await write(world, "t", key.partition, b"2")
    await world.kill(old)
    await world.kill(other)
    swap(world, old, "/old", "/data", "/newer")
    monkeypatch.setattr(tree_watchers, "read_brokers", read_when_it_can)
    starts = []
    for number, seconds in ((old, 60), (other, 10)):
        starts.append(asyncio.create_task(world.start(number)))
        await asyncio.sleep(seconds)
    can_look.set()
    await asyncio.gather(*starts)
    await until(lambda: all(len(image(world, key).isr) == 2 for key in lost))
    found = await world.read("t", 2)
    assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)


@in_world(brokers=2)
async def test_an_unreadable_partition_state_does_not_prevent_a_start_after_a_crash(world: World) -> None:
    await create(world, "t", partitions=1, replicas=2)
    number = next(number for number, broker in world.running.items() if not broker.metadata_loop.is_controller)
    await world.kill(number)
    await world.store(1 - number).set(paths.partition_state(TopicPartition("t", 0)), b"broken", ANY_VERSION)
    await world.start(number)
    assert number in world.running
