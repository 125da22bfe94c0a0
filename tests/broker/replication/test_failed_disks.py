"""Disks that fail on three brokers, in virtual time (M1): other replicas lead, and nothing is lost."""

import asyncio
import errno
import logging

import pytest

from odradek.broker.cluster.log_dir_events import LogDirEvents
from odradek.broker.log.names import parent_of
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER, LogDirEventNode
from odradek.metadata.store import SessionExpired
from odradek.model import KafkaError, TopicPartition, UnavailableError
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import T0, controller, create, fill, image

pytestmark = pytest.mark.long

TWO = {"log.dirs": "/a,/b"}


def beside(world: World, number: int, key: TopicPartition) -> set[TopicPartition]:
    """The partitions that a broker has in the same data directory as this one, which is among them."""
    logs = world.running[number].logs.logs
    (directory,) = (parent_of(log.directory) for each, log in logs.items() if each == key)
    return {each for each, log in logs.items() if parent_of(log.directory) == directory}


def break_disk(world: World, number: int, *, partition: int = 0) -> None:
    """Let the next write to the log of a partition fail there, and with it the whole directory."""
    disk = world.simulation.disk(world.hosts[number])
    disk.fail_next("append", errno.EIO, path_end=f"t-{partition}/00000000000000000000.log")


def notices(world: World) -> list[str]:
    return world.tree.names(paths.LOG_DIR_EVENT_NOTIFICATION)


@pytest.mark.parametrize("is_controller", [False, True], ids=["another broker's", "the controller's own"])
@pytest.mark.parametrize("seed", range(3))
@in_world(TWO, brokers=3)
async def test_when_a_leader_s_disk_fails_another_replica_leads(world: World, is_controller: bool) -> None:
    """M1: producers continue, and the broker rejoins the ISR after a restart with a working disk."""
    await create(world, partitions=3)
    commander = controller(world)
    key = next(
        key
        for key in (TopicPartition("t", number) for number in range(3))
        if (image(world, key=key).leader == commander) == is_controller
    )
    await fill(world, 50, partition=key.partition)
    broken = image(world, key=key).leader
    lost = beside(world, broken, key)
    break_disk(world, broken, partition=key.partition)
    await fill(world, 50, first=50, partition=key.partition)
    leader = image(world, key=key).leader
    assert leader not in (broken, NO_LEADER)
    assert sorted(image(world, key=key).isr) == sorted({0, 1, 2} - {broken})
    assert controller(world) == commander, "nobody was taken for dead"
    assert world.running[broken].partitions.offline_count == len(lost) in (1, 2)
    assert (await world.read("t", 3))[key.partition] == [b"%d" % value for value in range(100)]
    assert len({image(world, key=TopicPartition("t", number)).leader for number in range(3)} - {broken}) >= 1
    for each in (TopicPartition("t", number) for number in range(3)):
        assert (broken in image(world, key=each).isr) == (each not in lost), "its other directory serves"
    assert not notices(world)
    await world.stop(broken)
    await world.start(broken)
    await until(lambda: len(image(world, key=key).isr) == 3)
    assert world.running[broken].partitions.offline_count == 0


@in_world({"replica.lag.time.max.ms": "60000"}, seed=1, brokers=3)
async def test_a_follower_whose_disk_fails_leaves_the_isr_at_once(world: World) -> None:
    """M1: producers do not wait for `replica.lag.time.max.ms`."""
    await create(world)
    follower = next(each for each in image(world).isr if each not in (image(world).leader, controller(world)))
    leader = image(world).leader
    break_disk(world, follower)
    began = world.now_s
    await fill(world, 10)
    assert world.now_s - began < 5
    assert (image(world).leader, sorted(image(world).isr)) == (leader, sorted({0, 1, 2} - {follower}))


def test_a_partition_whose_disks_all_failed_is_offline_in_metadata(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """M1."""

    async def scene(world: World) -> None:
        await create(world)
        await fill(world, 10)
        for number in world.running:
            break_disk(world, number)
        async with world.producer("unlucky", delivery_timeout_ms=40_000) as producer:
            with pytest.raises(KafkaError):
                await (await producer.send("t", b"for nobody", partition=0))
        await until(lambda: all(image(world, number=number).leader == NO_LEADER for number in world.running))
        assert len(image(world).isr) == 1, "who was in sync last is waited for"
        assert [broker.partitions.offline_count for broker in world.running.values()] == [1, 1, 1]
        said = [record.getMessage() for record in caplog.records]
        assert {f"broker {number} can't use the logs of 1 partitions" for number in range(3)} <= set(said)
        last = image(world).isr[0]
        await world.stop(last)
        await world.start(last)
        await until(lambda: image(world).leader == last)
        assert (await world.read("t", 1))[0] == [b"%d" % value for value in range(10)]

    with caplog.at_level(logging.INFO, "odradek"):
        World(2, brokers=3).play(scene)


@in_world(seed=3, brokers=3)
async def test_many_failed_logs_create_few_notification_nodes(world: World) -> None:
    await create(world, partitions=20)
    broken = next(number for number in world.running if number != controller(world))
    keys = [TopicPartition("t", number) for number in range(20)]
    led = [key for key in keys if image(world, key=key).leader == broken]
    for key in led:
        break_disk(world, broken, partition=key.partition)
    before = world.running[broken].tree.counts["Create"]
    async with world.producer("writer") as producer:
        for key in keys:
            await producer.send("t", b"one", partition=key.partition)
    assert len(led) > 3
    assert all(image(world, key=key).leader not in (broken, NO_LEADER) for key in led)
    assert world.running[broken].tree.counts["Create"] - before <= 2
    assert all(len(each) == 1 for each in (await world.read("t", 20)).values())


@pytest.mark.parametrize("seed", range(3))
@in_world(brokers=3)
async def test_a_log_dir_failure_is_handled_by_the_next_controller(world: World) -> None:
    """M1: the controller dies between the failure and the election."""
    await create(world, partitions=3)
    dying = controller(world)
    keys = [TopicPartition("t", number) for number in range(3)]
    key = next(key for key in keys if image(world, key=key).leader != dying)
    await fill(world, 10, partition=key.partition)
    broken = image(world, key=key).leader
    break_disk(world, broken, partition=key.partition)
    async with world.producer("writer", acks=1, retries=0) as producer:
        with pytest.raises(KafkaError):
            await (await producer.send("t", b"lost, and said so", partition=key.partition))
    await world.kill(dying)
    (survivor,) = {0, 1, 2} - {dying, broken}
    await until(lambda: image(world, key, survivor).leader == survivor)
    await fill(world, 10, first=10, partition=key.partition)
    assert (await world.read("t", 3))[key.partition] == [b"%d" % value for value in range(20)]
    await until(lambda: not notices(world))


def test_an_unreadable_log_dir_notification_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """M9."""

    async def scene(world: World) -> None:
        await create(world)
        store = world.store(0)
        path = await store.create(paths.log_dir_event(), b"{", sequence=True)
        await store.create(paths.log_dir_event(), LogDirEventNode(broker_id=77).encode(), sequence=True)
        await until(lambda: notices(world) == [paths.name_of(path)])
        broken = image(world).leader
        break_disk(world, broken)
        await fill(world, 10)
        assert image(world).leader != broken
        assert sum(path in record.getMessage() for record in caplog.records) == 1
        await store.delete(path)

    with caplog.at_level(logging.INFO, "odradek"):
        World(4, brokers=3).play(scene)


@in_world(seed=5, brokers=3)
async def test_a_log_dir_notification_that_could_not_be_written_is_retried(world: World) -> None:
    await create(world)
    broken = next(number for number in world.running if number != controller(world))
    store = world.store(broken)
    refusals = iter([UnavailableError("not now"), SessionExpired()])
    create_node = store.create

    async def reluctant(path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        for refusal in refusals:
            raise refusal
        return await create_node(path, data, ephemeral=ephemeral, sequence=sequence)

    failed = LogDirEvents(store, broken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "create", reluctant)
        failed.notify()
        failed.notify()
        written: list[str] = []
        watch = store.watch_children(paths.LOG_DIR_EVENT_NOTIFICATION, lambda: written.extend(notices(world)))
        await until(lambda: bool(written))
    await until(lambda: not notices(world))
    watch.cancel()
    failed.stop()
    failed.notify()
    assert len(set(written)) == 1, "both at once, and nothing when it has stopped"


@in_world(seed=6, brokers=3, noticed_at_once=False)
async def test_a_disk_failure_without_a_controller_is_handled_by_the_next_one(world: World) -> None:
    """M1: the node waits in the tree."""
    await create(world, partitions=3)
    dying = controller(world)
    keys = [TopicPartition("t", number) for number in range(3)]
    key = next(key for key in keys if image(world, key=key).leader != dying)
    broken = image(world, key=key).leader
    await world.kill(dying)
    break_disk(world, broken, partition=key.partition)
    async with world.producer("writer", acks=1, retries=0) as producer:
        with pytest.raises(KafkaError):
            await (await producer.send("t", b"lost, and said so", partition=key.partition))
    await until(lambda: bool(notices(world)))
    (survivor,) = {0, 1, 2} - {dying, broken}
    await until(lambda: image(world, key, survivor).leader == survivor)
    await until(lambda: not notices(world))
    await fill(world, 10, partition=key.partition)


@pytest.mark.parametrize("full", [0, 1, 2], ids="broker {}".format)
@in_world(brokers=3)
async def test_a_replica_that_could_not_be_created_on_a_full_disk_joins_the_isr_when_there_is_room(
    world: World, full: int
) -> None:
    """The replica may be a leader or a follower, on the controller or not; other replicas lead meanwhile."""
    await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
    disk = world.simulation.disk(world.hosts[full])
    disk.capacity_bytes = disk.used_bytes()
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=3, replication_factor=3)
    keys = [TopicPartition("t", number) for number in range(3)]
    await until(lambda: world.running[full].partitions.offline_count == 3)
    await until(lambda: all(image(world, key=key).leader not in (full, NO_LEADER) for key in keys))
    for number in range(3):
        await fill(world, 5, partition=number)
    await asyncio.sleep(30)
    assert world.running[full].partitions.offline_count == 3
    disk.capacity_bytes = None
    await until(lambda: all(sorted(image(world, key=key).isr) == [0, 1, 2] for key in keys))
    assert world.running[full].partitions.offline_count == 0
    found = await world.read("t", 3)
    assert found == {number: [b"%d" % value for value in range(5)] for number in range(3)}


def test_a_follower_on_a_full_disk_backs_off_logs_once_and_continues_when_there_is_room(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk must not be filled further by log lines."""

    async def scene(world: World) -> None:
        await create(world)
        await fill(world, 5)
        follower = next(number for number in range(3) if number != image(world).leader)
        disk = world.simulation.disk(world.hosts[follower])
        disk.capacity_bytes = disk.used_bytes()
        async with world.producer("writer", acks=1) as producer:
            await (await producer.send("t", b"5", partition=0))
        await asyncio.sleep(5)
        lines, received = len(caplog.records), world.running[follower].counters.replication_bytes_in
        await asyncio.sleep(20)
        assert len(caplog.records) - lines <= 2
        again = world.running[follower].counters.replication_bytes_in - received
        assert 0 < again < 30 * 200, "once a second"
        disk.capacity_bytes = None
        await until(lambda: world.running[follower].logs.logs[T0].written_offset == 6)
        assert await world.read("t", 1) == {0: [b"%d" % value for value in range(6)]}

    caplog.set_level(logging.INFO)
    World(seed, brokers=3).play(scene)
