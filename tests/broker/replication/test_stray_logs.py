"""Logs of topics that were deleted, or of replicas that were moved, while their broker was down."""

import asyncio
import errno
import logging

import pytest
from msgspec.structs import replace

from odradek.broker.replication.stray_logs import Notes, StrayLogs
from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode
from odradek.model import TopicPartition, UnavailableError
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from tests.world.scenes import in_world
from tests.world.topics import T0, create, write

pytestmark = pytest.mark.long


def folders(world: World, number: int = 2, topic: str = "t") -> list[str]:
    """The folders of the topic's logs, without the digits that chance gives them."""
    names = world.simulation.disk(world.hosts[number]).list("/data")
    kinds = [f"{first}.{rest[33:]}" if rest else first for first, _, rest in (each.partition(".") for each in names)]
    return sorted(each for each in kinds if each.startswith(f"{topic}-"))


async def notes(world: World) -> list[str]:
    return await world.store(next(iter(world.running))).children(paths.DELETED_REPLICAS)


async def delete(world: World, topic: str = "t") -> None:
    async with world.admin() as client:
        await client.delete_topics([topic])
    await until(lambda: all(topic not in broker.image.topics for broker in world.running.values()))


async def move_away(world: World) -> None:
    """The replica of `t` on broker 2, which is away, is removed."""
    async with world.admin() as client:
        await client.alter_partition_reassignments({T0: [0, 1]})
    await until(lambda: set(world.running[0].image.topics["t"].partitions[0].replicas) == {0, 1})


async def begin(world: World) -> None:
    """Two topics; broker 2 is stopped."""
    for topic in ("t", "u"):
        await create(world, topic, partitions=1, replicas=3)
        await write(world, topic, 0, b"1")
    await world.stop(2)


@in_world(brokers=3)
async def test_the_log_of_a_topic_deleted_while_its_broker_was_down_is_deleted_after_a_delay(world: World) -> None:
    await begin(world)
    await delete(world)
    assert folders(world, 0) == ["t-0.delete"]
    assert folders(world) == ["t-0"]
    (note,) = await notes(world)
    assert note.startswith("2-")
    await world.start(2)
    await until(lambda: folders(world) == ["t-0.stray"])
    world.tree.expire(world.store(2).session_id)  # with the next session the broker looks again
    await asyncio.sleep(10)
    await world.stop(2)
    await world.start(2)  # before the delay is over
    assert folders(world) == ["t-0.stray"]
    await until(lambda: folders(world) == [], within_s=1000)
    await world.stop(2)
    await world.start(2)
    await asyncio.sleep(1)
    assert await notes(world) == []
    await until(lambda: all(len(b.image.topics["u"].partitions[0].isr) == 3 for b in world.running.values()))
    assert await world.read("u", 1) == {0: [b"1"]}


@pytest.mark.parametrize("replicas", [2, 3])
@in_world(brokers=3)
async def test_without_a_note_the_log_of_another_topic_of_the_name_is_renamed_and_kept(
    world: World, replicas: int
) -> None:
    """The topic that has the name now may have a replica on the broker, too."""
    await begin(world)
    await delete(world)
    await create(world, "t", partitions=1, replicas=replicas)
    store = world.store(0)
    for each in await notes(world):
        await store.delete(paths.child(paths.DELETED_REPLICAS, each))
    await world.start(2)
    expected = ["t-0"] * (replicas - 2) + ["t-0.stray"]
    await until(lambda: folders(world) == expected)
    await asyncio.sleep(200)
    await world.stop(2)
    await world.start(2)
    await asyncio.sleep(200)
    assert folders(world) == expected
    assert TopicPartition("u", 0) in world.running[2].logs.logs


@in_world(brokers=3)
async def test_a_replica_moved_away_while_its_broker_was_down_is_deleted(world: World) -> None:
    await begin(world)
    await move_away(world)
    await world.start(2)
    await until(lambda: folders(world) == ["t-0.delete"])
    assert folders(world, topic="u") == ["u-0"]
    await until(lambda: folders(world) == [], within_s=1000)
    assert await world.read("t", 1) == {0: [b"1"]}
    assert await notes(world) == []


@in_world(brokers=3)
async def test_a_moved_replica_that_could_not_be_deleted_is_deleted_after_the_next_start(world: World) -> None:
    await begin(world)
    await move_away(world)
    world.simulation.disk(world.hosts[2]).fail_next("rename", errno.EBUSY, path_end="/t-0")
    await world.start(2)
    await asyncio.sleep(200)
    assert folders(world) == ["t-0"]
    await world.stop(2)
    await world.start(2)
    await until(lambda: folders(world) == [], within_s=1000)
    assert await notes(world) == []


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO])
@pytest.mark.parametrize("what", ["deleted", "created again", "moved away"])
@in_world(brokers=3)
async def test_a_replica_whose_deletion_failed_is_deleted_after_the_next_start(
    world: World, what: str, code: int
) -> None:
    for topic in ("t", "u"):
        await create(world, topic, partitions=1, replicas=3)
        await write(world, topic, 0, b"1")
    world.simulation.disk(world.hosts[2]).fail_next("rename", code, path_end="/t-0")
    if what == "moved away":
        await move_away(world)
    else:
        await delete(world)
    await until(lambda: folders(world, 1) == ([] if what != "moved away" else ["t-0"]), within_s=1000)
    if what == "created again":
        async with world.admin() as client:
            await client.create_topic("t", partitions=1, replication_factor=3)
    await asyncio.sleep(200)
    await world.kill(2)
    await world.start(2)
    await until(lambda: folders(world) == (["t-0"] if what == "created again" else []), within_s=1000)
    await world.kill(2)
    await world.start(2)
    await asyncio.sleep(100)
    assert await notes(world) == []
    if what == "created again":
        await write(world, "t", 0, b"2")
        assert await world.read("t", 1) == {0: [b"2"]}
    await until(lambda: all(len(b.image.topics["u"].partitions[0].isr) == 3 for b in world.running.values()))
    assert await world.read("u", 1) == {0: [b"1"]}


@in_world(brokers=3)
async def test_a_moved_replica_stays_until_an_in_sync_replica_is_alive(world: World) -> None:
    await begin(world)
    await move_away(world)
    await world.stop(0)
    await world.stop(1)
    await world.start(2)
    await asyncio.sleep(200)
    assert folders(world) == ["t-0"]
    await world.start(0)
    await world.start(1)
    await until(lambda: folders(world) == [], within_s=1000)


def test_a_moved_replica_stays_if_its_log_has_a_newer_leader_epoch_than_the_tree(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=3)
        leader = world.running[0].image.topics["t"].partitions[0].leader
        await world.stop(leader)
        await world.start(leader)
        await until(lambda: all(len(b.image.topics["t"].partitions[0].isr) == 3 for b in world.running.values()))
        await write(world, "t", 0, b"1")
        log = world.running[2].logs.get(T0)
        assert log is not None
        await until(lambda: log.epochs.latest > 0)
        await world.stop(2)
        await move_away(world)
        await asyncio.sleep(60)  # the controller writes nothing more
        path = paths.partition_state(T0)
        node = await world.store(0).get(path)
        assert node is not None
        await world.store(0).set(path, replace(PartitionStateNode.decode(path, node.data), leader_epoch=0).encode())
        await world.start(2)
        await asyncio.sleep(200)
        assert folders(world) == ["t-0"]
        assert len(await notes(world)) == 1

    with caplog.at_level(logging.WARNING, "odradek"):
        World(seed, brokers=3).play(scene)
    assert caplog.text.count("1 logs are left alone") == 1


def test_a_replica_stays_that_an_old_backup_of_the_tree_assigns_elsewhere(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The only log: the other broker deleted its own when the replica was moved."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await write(world, "t", 0, b"1")
        (before,) = world.running[0].image.topics["t"].partitions[0].replicas
        after = 1 - before
        nodes = {path: await world.store(0).get(path) for path in (paths.topic("t"), paths.partition_state(T0))}
        async with world.admin() as client:
            await client.alter_partition_reassignments({T0: [after]})
        await until(lambda: folders(world, before) in ([], ["t-0.delete"]))
        await until(lambda: world.running[0].image.topics["t"].partitions[0].replicas == (after,))
        await world.stop(0)
        await world.stop(1)
        store = MemoryStore(world.tree)
        for path, node in nodes.items():
            assert node is not None
            await store.set(path, node.data)
        await store.close()
        await world.start(before)
        await world.start(after)
        await asyncio.sleep(200)
        assert folders(world, after) == ["t-0"]

    with caplog.at_level(logging.WARNING, "odradek"):
        World(seed, brokers=2).play(scene)
    assert "restore the newer metadata" in caplog.text


@in_world(brokers=3)
async def test_a_moved_replica_whose_topic_was_then_deleted_is_deleted(world: World) -> None:
    await begin(world)
    await move_away(world)
    await delete(world)
    await world.start(2)
    await until(lambda: folders(world) == [], within_s=1000)
    await until(lambda: world.tree.names(paths.DELETED_REPLICAS) == [])
    assert folders(world, topic="u") == ["u-0"]


@in_world(brokers=3)
async def test_unregistering_a_broker_removes_its_notes(world: World) -> None:
    await begin(world)
    await move_away(world)
    await delete(world, "u")
    await world.store(0).create(f"{paths.DELETED_REPLICAS}/22-{'a' * 32}")
    assert len(await notes(world)) == 3
    async with world.admin() as client:
        await client.unregister_broker(2)
    assert await notes(world) == [f"22-{'a' * 32}"]


@pytest.mark.parametrize("why", ["no id", "no node", "a broken node", "no topics", "of another cluster's topic"])
def test_a_log_that_the_tree_does_not_know_is_left_alone(seed: int, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await write(world, "t", 0, b"1")
        await world.stop()
        disk = world.simulation.disk(world.hosts[0])
        store = MemoryStore(world.tree)
        path = paths.partition_state(T0)
        if why == "no id":
            disk.remove("/data/t-0/partition.metadata")
        if why == "of another cluster's topic":
            disk.rename("/data/t-0", "/data/kafka-0")
        if why == "a broken node":
            await store.set(paths.topic("t"), b"{")
        elif why in ("no node", "no topics", "no id"):
            while path != paths.TOPICS:
                await store.delete(path)
                path = paths.parent(path)
        await store.close()
        await world.start()
        await asyncio.sleep(200)
        assert any(name in ("t-0", "kafka-0") for name in disk.list("/data"))
        assert not any(name.endswith(("-stray", "-delete")) for name in disk.list("/data"))

    with caplog.at_level(logging.WARNING, "odradek"):
        World(seed).play(scene)
    if why in ("no node", "no topics"):
        assert "1 logs are left alone, as the metadata does not have these replicas" in caplog.text


@in_world()
async def test_a_stray_folder_that_the_tree_does_not_explain_stays(world: World) -> None:
    await world.stop()
    disk = world.simulation.disk(world.hosts[0])
    name = f"/data/kafka-0.{'a' * 32}-stray"
    disk.make_directories(name)
    await world.start()
    await asyncio.sleep(200)
    assert disk.exists(name)


@in_world()
async def test_an_empty_log_without_an_id_is_deleted_with_its_topic(world: World) -> None:
    """A power cut tore the id of a new log, and the topic was deleted before the broker was back."""
    for topic in ("t", "kept"):
        await create(world, topic, partitions=1, replicas=1)
    await world.stop()
    disk, store = world.simulation.disk(world.hosts[0]), MemoryStore(world.tree)
    for topic in ("t", "kept"):
        disk.remove(f"/data/{topic}-0/partition.metadata")
    path = paths.partition_state(T0)
    while path != paths.TOPICS:
        await store.delete(path)
        path = paths.parent(path)
    await store.close()
    await world.start()
    await asyncio.sleep(200)
    assert disk.exists("/data/kept-0/partition.metadata")
    assert not any(name.startswith("t-") for name in disk.list("/data"))


@in_world(brokers=3)
async def test_a_search_that_the_tree_did_not_answer_is_repeated(world: World) -> None:
    """A session that goes on after a short loss of the connection is no reason for another search."""
    await begin(world)
    await delete(world)
    read_notes, reads = StrayLogs._read_notes, 0

    async def lose_first(stray_logs: StrayLogs) -> Notes:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise UnavailableError("the connection to the metadata tree is lost")
        return await read_notes(stray_logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StrayLogs, "_read_notes", lose_first)
        await world.start(2)
        await asyncio.sleep(200)
    assert folders(world) == []
