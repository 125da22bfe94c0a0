"""Damaged files of a replica, in virtual time (M1): other replicas lead, and the data is copied back."""

import asyncio
import logging

import pytest

from odradek.broker.log.errors import DamagedFileError, DamagedSegmentError
from odradek.broker.log.recovery.segment_damage import DamageCheck
from odradek.model import ErrorCode
from odradek.simulation.world import World, until
from tests.broker.log.scene import flip
from tests.world.scenes import in_world
from tests.world.topics import T0, create, fill, leader_of, leaders

pytestmark = pytest.mark.long

FIRST = f"{0:020d}.log"
CONFIG = {"default.replication.factor": "3", "log.segment.bytes": "2000", "replica.lag.time.max.ms": "2000"}


def damage(world: World, number: int, *, byte: int = 65, name: str = FIRST) -> None:
    """Flip a bit of the first batch, or of another, in the file of a broker's log."""
    log = world.running[number].logs.logs[T0]
    flip(world.simulation.disk(world.hosts[number]), f"{log.directory}/{name}", byte)


def stray_logs(world: World, number: int) -> list[str]:
    return [each for each in world.simulation.disk(world.hosts[number]).list("/data") if each.endswith("-stray")]


def good_files(world: World) -> set[bytes]:
    """The first segments of all replicas: one, if they are alike."""
    return {
        world.simulation.disk(host).read_file(f"{world.running[number].logs.logs[T0].directory}/{FIRST}")
        for number, host in enumerate(world.hosts)
    }


async def whole(world: World, replicas: int = 3) -> None:
    await until(lambda: len(leaders(world)) == 1 and len(leader_of(world)[1].isr) == replicas)


@pytest.mark.parametrize("byte", [65, 8, 9, 16, 17, 3], ids=["value", "length", "lower", "magic", "crc", "offset"])
@pytest.mark.parametrize("seed", range(2))
@in_world(CONFIG, brokers=3)
async def test_a_leader_with_a_damaged_file_is_replaced_and_copies_the_log_back(world: World, byte: int) -> None:
    await create(world)
    await fill(world, 100, is_each_awaited=True)
    damaged, _ = leader_of(world)
    damage(world, damaged, byte=byte)
    assert await world.read("t", 1) == {0: [b"%d" % value for value in range(100)]}
    assert leader_of(world)[0] != damaged
    await fill(world, 10, first=100, is_each_awaited=True)
    await whole(world)
    assert len(good_files(world)) == 1
    (stray,) = stray_logs(world, damaged)
    assert FIRST in world.simulation.disk(world.hosts[damaged]).list(f"/data/{stray}"), "an operator may look at it"
    assert world.running[damaged].partitions.offline_count == 0
    await world.stop(leader_of(world)[0])
    assert await world.read("t", 1) == {0: [b"%d" % value for value in range(110)]}


@in_world(CONFIG, seed=1, brokers=3)
async def test_damage_behind_the_first_batch_of_a_response_is_found_by_clients_that_verify(world: World) -> None:
    """A client that refuses a batch fetches it again as the first one of a response, which the leader verifies."""
    await create(world)
    await fill(world, 10, is_each_awaited=True)
    damaged, partition = leader_of(world)
    damage(world, damaged, byte=partition.log.segments[0].find(5) + 65)
    assert await world.read("t", 1) == {0: [b"%d" % value for value in range(10)]}
    assert leader_of(world)[0] != damaged


@pytest.mark.parametrize("shortage", ["threads", "descriptors"])
@in_world(CONFIG, seed=1, brokers=3)
async def test_a_damage_check_that_failed_in_a_shortage_is_repeated(world: World, shortage: str) -> None:
    await create(world)
    await fill(world, 100, is_each_awaited=True)
    damaged, _ = leader_of(world)
    damage(world, damaged)
    disk = world.simulation.disk(world.hosts[damaged])
    disk.has_threads = shortage != "threads"
    disk.most_open_files = disk.open_files if shortage == "descriptors" else None
    reading = asyncio.create_task(world.read("t", 1))
    await asyncio.sleep(3)
    assert leader_of(world)[0] == damaged
    disk.has_threads, disk.most_open_files = True, None
    assert await reading == {0: [b"%d" % value for value in range(100)]}
    assert leader_of(world)[0] != damaged


def test_an_undamaged_segment_is_checked_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    run = DamageCheck.run

    def count(suspicion: DamageCheck) -> DamagedFileError | None:
        checks.append(suspicion.segment.log.path)
        return run(suspicion)

    async def scene(world: World) -> None:
        await create(world)
        await fill(world, 100, is_each_awaited=True)
        damaged, partition = leader_of(world)
        path = partition.log.segments[0].log.path
        for _ in range(50):
            partition.log.suspected.add(path)
            await asyncio.sleep(1)
        assert checks == [path], "once, however often a reader asks"
        damage(world, damaged)
        assert leader_of(world)[0] == damaged
        await asyncio.sleep(15)
        assert await world.read("t", 1) == {0: [b"%d" % value for value in range(100)]}
        assert leader_of(world)[0] != damaged

    monkeypatch.setattr(DamageCheck, "run", count)
    World(1, CONFIG, brokers=3).play(scene)


def test_a_damaged_leader_alone_in_the_isr_serves_undamaged_batches_until_another_joins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        await create(world, replicas=2)
        await fill(world, 100, is_each_awaited=True)
        damaged, partition = leader_of(world)
        (other,) = [each for each in partition.isr if each != damaged]
        await world.kill(other)
        await until(lambda: partition.isr == (damaged,))
        damage(world, damaged, byte=partition.log.segments[0].find(5) + 65)
        async with world.consumer("reader", "t") as consumer:
            found: list[bytes] = []
            for _ in range(5):
                found += [each.value or b"" for each in await consumer.poll(1000)]
            assert found == [b"%d" % value for value in range(5)]
            with pytest.raises(DamagedSegmentError) as caught:
                partition.log.read(5, 1000)
            assert partition.read_error(caught.value).code is ErrorCode.corrupt_message
        await fill(world, 10, first=100, is_each_awaited=True)
        assert leader_of(world)[0] == damaged
        (said,) = [each.getMessage() for each in caplog.records if "is damaged" in each.getMessage()]
        assert "`odradek log verify /data/t-0` shows the damage" in said
        await world.start(other)
        await until(lambda: list(leaders(world)) == [other])
        await whole(world, 2)
        assert await world.read("t", 1) == {0: [b"%d" % value for value in range(110)]}
        assert stray_logs(world, damaged)

    with caplog.at_level(logging.INFO, "odradek"):
        World(1, CONFIG, brokers=3, noticed_at_once=True).play(scene)


def test_a_damaged_leader_is_not_replaced_by_a_dead_broker_that_is_still_registered() -> None:
    async def scene(world: World) -> None:
        await create(world, replicas=2)
        await fill(world, 20, is_each_awaited=True)
        damaged, partition = leader_of(world)
        (other,) = [each for each in partition.isr if each != damaged]
        cut_off = world.hosts[other]
        world.simulation.network.partition([cut_off], [each for each in world.hosts if each != cut_off])
        await world.kill(other)  # nobody receives that it refuses connections
        await asyncio.sleep(3)
        assert other in partition.isr
        damage(world, damaged, byte=partition.log.segments[0].find(5) + 65)
        partition.log.suspected.add(partition.log.segments[0].log.path)
        await asyncio.sleep(20)
        assert list(leaders(world)) == [damaged]
        assert partition.log.suspected.damage is not None
        assert partition.isr == (damaged,)

    slow = {"replica.lag.time.max.ms": "30000"}
    World(2, CONFIG | slow, brokers=3, noticed_at_once=False).play(scene)


@in_world(CONFIG, seed=1, brokers=3)
async def test_a_lagging_follower_copies_the_batches_before_the_damage(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its leader, which is alone in sync, then knows of the damage without a consumer."""
    await create(world, replicas=2)
    await fill(world, 10, is_each_awaited=True)
    damaged, partition = leader_of(world)
    (other,) = [each for each in partition.isr if each != damaged]
    await world.kill(other)
    await until(lambda: partition.isr == (damaged,))
    await fill(world, 10, first=10, is_each_awaited=True)
    damage(world, damaged, byte=partition.log.segments[0].find(15) + 65)
    await world.start(other)
    await until(lambda: world.running[other].logs.logs[T0].written_offset == 15)
    await until(lambda: partition.log.suspected.damage is not None)
    assert leader_of(world)[0] == damaged
    assert not stray_logs(world, damaged), "it has what nobody else has"
    await asyncio.sleep(60)
    refusals = [each for each in caplog.records if "failed with CORRUPT_MESSAGE" in each.getMessage()]
    assert len(refusals) == 1, "one line, however often the follower asks"


@in_world(CONFIG, seed=1, brokers=3)
async def test_a_log_that_is_damaged_again_is_offline_until_the_broker_is_restarted(world: World) -> None:
    await create(world, replicas=2)
    await fill(world, 20, is_each_awaited=True)
    damaged, partition = leader_of(world)
    (other,) = [each for each in partition.isr if each != damaged]
    damage(world, damaged)
    assert await world.read("t", 1) == {0: [b"%d" % value for value in range(20)]}
    await until(lambda: len(leaders(world)) == 1 and len(leader_of(world)[1].isr) == 2)
    await world.stop(other)
    await until(lambda: list(leaders(world)) == [damaged])
    await world.start(other)
    await whole(world, 2)
    damage(world, damaged)
    assert await world.read("t", 1) == {0: [b"%d" % value for value in range(20)]}
    assert leader_of(world)[0] == other
    await until(lambda: world.running[damaged].partitions.offline_count == 1)
    await asyncio.sleep(60)
    assert leader_of(world)[1].isr == (other,)
    assert len(stray_logs(world, damaged)) == 1
    await world.stop(damaged)
    await world.start(damaged)
    await whole(world, 2)


@in_world(CONFIG | {"log.cleaner.backoff.ms": "1000"}, seed=1, brokers=3)
async def test_a_follower_whose_damage_is_found_by_compaction_copies_its_log_again(world: World) -> None:
    await create(world, cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01")
    leader, partition = leader_of(world)
    damaged = next(each for each in partition.isr if each != leader)
    async with world.producer("writer", linger_ms=0) as producer:
        for value in range(30):
            await (await producer.send("t", b"%d" % value, key=b"%d" % (value % 5), partition=0))
        damage(world, damaged)
        for value in range(30, 60):
            await (await producer.send("t", b"%d" % value, key=b"%d" % (value % 5), partition=0))
    await until(lambda: bool(stray_logs(world, damaged)))
    await whole(world)
    assert leader_of(world)[0] == leader
    assert not stray_logs(world, leader)
