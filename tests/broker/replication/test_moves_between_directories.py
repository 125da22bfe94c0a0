"""Replicas that move between the data directories of their broker (KIP-113), in virtual time."""

import asyncio
import errno
from contextlib import suppress
from typing import Any, Final

import pytest

from odradek.broker.log.names import parent_of
from odradek.broker.replication.partition import Partition
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import T0, create, fill, image, write

CONFIG: Final = {"log.dirs": "/a,/b", "auto.leader.rebalance.enable": "false"}
RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW: Final = {**CONFIG, RATE: "20000"}
"""A piece of 256 KiB takes 13 s."""


def place(world: World, number: int = 0, key: TopicPartition = T0) -> str:
    return parent_of(world.running[number].logs.logs[key].directory)


def other_of(directory: str) -> str:
    return {"/a": "/b", "/b": "/a"}[directory]


def disk(world: World, number: int = 0) -> MemoryDisk:
    return world.simulation.disk(world.hosts[number])


def folders(world: World, number: int = 0) -> list[str]:
    """Return what the broker has of the partition, in both directories."""
    return [
        f"{path}/{name}" for path in ("/a", "/b") for name in disk(world, number).list(path) if name.startswith("t-0")
    ]


async def move(world: World, path: str, number: int = 0, key: TopicPartition = T0) -> None:
    async with world.admin() as admin:
        await admin.alter_replica_log_dirs(number, {key: path})


async def refused(world: World, path: str, number: int = 0, key: TopicPartition = T0) -> ErrorCode:
    with pytest.raises(RefusedPartitionsError) as caught:
        await move(world, path, number, key)
    (error,) = caught.value.errors.values()
    return error.code


async def fill_slowly(world: World, count: int = 60) -> None:
    """Write more than one piece, in large batches."""
    await write(world, "t", 0, *(b"%d" % number + b"x" * 10_000 for number in range(count)))


async def begin_slow_move(world: World) -> tuple[str, str]:
    """Begin a move that takes long; return the directories from and to which."""
    await create(world)
    await fill_slowly(world)
    source = place(world)
    await move(world, other_of(source))
    await until(lambda: bool(world.running[0].logs.futures[T0].log.segments.size))
    return source, other_of(source)


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
@in_world(CONFIG, brokers=3)
async def test_a_replica_moves_while_it_is_written_to_and_read(world: World, is_leader: bool) -> None:
    await create(world)
    await fill(world, 200, is_each_awaited=True)
    leader = image(world).leader
    number = leader if is_leader else next(each for each in image(world).replicas if each != leader)
    log, source = world.running[number].logs.logs[T0], place(world, number)
    epoch = image(world).leader_epoch
    writing = asyncio.create_task(fill(world, 600, first=200, is_each_awaited=True))
    await move(world, other_of(source), number)
    await until(lambda: place(world, number) == other_of(source))
    assert not writing.done()
    await writing
    assert (await world.read("t", 1))[0] == [b"%d" % value for value in range(800)]
    assert world.running[number].logs.logs[T0] is log, "a leader or follower does not notice"
    assert (image(world).leader_epoch, len(image(world).isr)) == (epoch, 3)
    await until(lambda: folders(world, number) == [f"{other_of(source)}/t-0"])
    await world.cut_power(Survival.LOSE, number)
    await world.start(number)
    assert place(world, number) == other_of(source)
    await until(lambda: len(image(world).isr) == 3)


@in_world(CONFIG, brokers=1)
async def test_appends_in_the_turn_of_the_swap_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection goes on with its next Produce request when the response to one is complete: in the same turn."""
    await create(world)
    await fill(world, 50)
    source, written, added = place(world), Partition.written, list[int]()

    def append_again(partition: Partition, size: int) -> None:
        written(partition, size)
        if partition.topic_partition == T0 and size and len(added) < 200:
            now_ms = world.broker.runtime.clock.now_ms()
            records = encode_batch([(now_ms, None, b"v", ())])
            added.append(partition.log.append_as_leader(records, leader_epoch=0, now_ms=now_ms).last_offset)
            asyncio.get_running_loop().call_later(0.001, world.broker.partitions.write_scheduler.mark, partition)

    monkeypatch.setattr(Partition, "written", append_again)
    await fill(world, 1)
    await move(world, other_of(source))
    await until(lambda: place(world) == other_of(source))
    assert len(added) < 200, "the last append is not before the swap"
    await until(lambda: len(added) == 200)
    await until(lambda: world.broker.logs.logs[T0].written_offset > added[-1])
    await world.kill()
    await world.start()
    assert place(world) == other_of(source)
    assert world.broker.logs.logs[T0].written_offset > added[-1]


@in_world(SLOW)
async def test_a_move_is_shown_and_keeps_to_its_rate(world: World) -> None:
    source, target = await begin_slow_move(world)
    size = world.broker.logs.logs[T0].segments.size
    async with world.admin() as admin:
        found = {each.log_dir: each for each in await admin.describe_log_dirs(0)}
    assert found[source].sizes[T0] == size
    assert T0 not in found[target].sizes
    assert 0 < found[target].future_sizes[T0] < size
    client = await world.client()
    described = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, 5)).results
    (future,) = (each for path in described for topic in path.topics for each in topic.partitions if each.is_future_key)
    assert future.offset_lag == 60 - world.broker.logs.futures[T0].log.log_end_offset > 0
    began = world.now_s
    await until(lambda: place(world) == target, each_s=0.1)
    assert world.now_s - began >= (size - found[target].future_sizes[T0]) / 20_000 * 0.9
    assert (await world.read("t", 1))[0][-1].startswith(b"59")


@in_world(CONFIG)
async def test_impossible_moves_are_refused_as_in_kafka(world: World) -> None:
    await create(world)
    assert await refused(world, "/c") is ErrorCode.log_dir_not_found
    assert await refused(world, "a") is ErrorCode.log_dir_not_found
    assert await refused(world, "") is ErrorCode.log_dir_not_found
    await move(world, place(world))
    assert not world.broker.logs.futures, "it is there"
    absent = TopicPartition("later", 0)
    assert await refused(world, "/b", key=absent) is ErrorCode.replica_not_available
    assert await refused(world, "/b", key=TopicPartition("x" * 249, 0)) is ErrorCode.invalid_topic_exception
    await world.create_topic("later")
    assert place(world, key=absent) == "/b", "where it was wanted"
    world.broker.logs.fail_directory(other_of(place(world)), OSError(errno.EIO, "broken"))
    await asyncio.sleep(0)
    assert await refused(world, other_of(place(world))) is ErrorCode.kafka_storage_error


@in_world(SLOW)
async def test_a_move_ends_when_another_one_begins(world: World) -> None:
    source, target = await begin_slow_move(world)
    before = world.broker.logs.futures[T0]
    await move(world, target)
    assert world.broker.logs.futures[T0] is before, "the same move"
    await move(world, source)
    assert not world.broker.logs.futures
    await until(lambda: folders(world) == [f"{source}/t-0"])


@pytest.mark.parametrize("change", ["topic deleted", "replica reassigned"])
@in_world(SLOW, brokers=2)
async def test_a_replica_that_goes_takes_its_copy_with_it(world: World, change: str) -> None:
    await create(world, replicas=2)
    await fill_slowly(world)
    await move(world, other_of(place(world)))
    async with world.admin() as admin:
        if change == "topic deleted":
            await admin.delete_topics(["t"])
        else:
            await admin.alter_partition_reassignments({T0: [1]})
    await until(lambda: T0 not in set(world.running[0].logs))
    assert not world.running[0].logs.futures
    await until(lambda: not [each for each in folders(world) if "-future" in each])


@pytest.mark.parametrize("operation", ["append", "sync", "rename", "create"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["broken", "full"])
@in_world(CONFIG, brokers=2)
async def test_a_log_stays_where_it_is_if_the_other_disk_fails(world: World, operation: str, number: int) -> None:
    """Nothing is lost, and a broken directory goes offline without the partition."""
    await create(world, replicas=2)
    await fill(world, 100, is_each_awaited=True)
    source = place(world)
    for path in ("-future", "00.log", "t-0", "-future/"):
        disk(world).fail_next(operation, number, path_end=path if operation != "append" else "00.log")
    with suppress(RefusedPartitionsError):
        await move(world, other_of(source))
    await asyncio.sleep(5)
    disk(world).forget_failures()
    await fill(world, 100, first=100, is_each_awaited=True)
    assert (await world.read("t", 1))[0] == [b"%d" % value for value in range(200)]
    log = world.running[0].logs.get(T0)
    if log is not None and log.failure is None:
        assert not world.running[0].logs.futures
    await world.restart(0)
    await until(lambda: len(image(world).isr) == 2)
    await until(lambda: not world.running[0].logs.futures, within_s=200)
    await until(lambda: len([each for each in folders(world) if each.endswith("/t-0")]) == 1)


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
@in_world(CONFIG)
async def test_a_move_goes_on_after_a_lack_of_descriptors(world: World, operation: str) -> None:
    await create(world)
    await fill(world, 100)
    source = place(world)
    disk(world).fail_next(operation, errno.EMFILE, path_end="t-0" if operation == "rename" else "00.log")
    await move(world, other_of(source))
    await until(lambda: place(world) == other_of(source))
    assert len((await world.read("t", 1))[0]) == 100


@in_world(CONFIG)
async def test_a_copy_for_which_there_is_no_room_is_removed_at_once(world: World) -> None:
    await create(world)
    await fill(world, 100)
    source = place(world)
    disk(world).fail_next("append", errno.ENOSPC, path_end="00.log")
    await move(world, other_of(source))
    await until(lambda: not world.broker.logs.futures)
    assert folders(world) == [f"{source}/t-0"]


@pytest.mark.parametrize("end", ["kill", "stop", "cut_power"])
@in_world(SLOW)
async def test_a_restart_begins_a_move_again(world: World, end: str) -> None:
    source, target = await begin_slow_move(world)
    disk(world).make_directories(f"{target}/gone-0.{'0' * 32}-future")
    disk(world).sync_directory(target)
    if end == "cut_power":
        await world.cut_power(Survival.ANY)
    else:
        await getattr(world, end)()
    await world.start()
    assert place(world) == source
    if end != "cut_power":  # else the beginning of the move may be lost
        await until(lambda: place(world) == target, within_s=200)
    await until(lambda: len(folders(world)) == 1, within_s=200)
    assert [name for name in disk(world).list(target) if name.startswith("gone")] == []
    assert len((await world.read("t", 1))[0]) >= (60 if end != "cut_power" else 0)


@in_world({**CONFIG, "log.cleaner.backoff.ms": "100", RATE: "100000"})
async def test_a_compacted_log_is_not_compacted_while_it_moves(world: World) -> None:
    """Else the copy could have a record whose tombstone compaction has removed."""
    await create(world, cleanup_policy="compact", segment_bytes="20000", min_cleanable_dirty_ratio="0.01")
    async with world.producer("writer") as producer:
        for number in range(60):
            await (await producer.send("t", b"x" * 10_000, key=b"%d" % (number % 3), partition=0))
        await move(world, other_of(place(world)))
        for number in range(30):
            await (await producer.send("t", b"y" * 10_000, key=b"%d" % (number % 3), partition=0))
    log, source = world.broker.logs.logs[T0], place(world)
    compacted = world.broker.logs.cleaner.offsets.get(T0)
    while place(world) == source:
        assert world.broker.logs.cleaner.offsets.get(T0) == compacted
        await asyncio.sleep(0.1)
    await until(lambda: log.segments.size < 150_000)


@in_world(CONFIG, brokers=1)
async def test_a_request_for_many_partitions_has_an_error_for_each(world: World) -> None:
    await create(world, partitions=2)
    client: Any = await world.client()
    topics = [{"name": "t", "partitions": [0, 1, 7]}, {"name": "gone", "partitions": [0]}]
    for version in (1, 2):
        answer = await client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": [{"path": "/b", "topics": topics}]}, version)
        codes = {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in answer.results
            for each in topic.partitions
        }
        absent = ErrorCode.replica_not_available
        assert codes == {("t", 0): 0, ("t", 1): 0, ("t", 7): absent, ("gone", 0): absent}
        await until(lambda: {place(world, key=TopicPartition("t", each)) for each in (0, 1)} == {"/b"})
    assert (await client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": []}, 2)).results == ()
