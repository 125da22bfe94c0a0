"""Throttled replication (KIP-73) in virtual time: replicas out of sync keep to the rate, others are not held back."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Final

import pytest

from odradek.broker.security.quotas.replication_quotas import ReplicationQuotaManager
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ErrorCode, KafkaError
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import T0, create, image, registered

RATE: Final = 200_000
FETCHED: Final = 20_000
"""The bytes of one fetch: two batches, as a truncated one would count, too."""
CONFIG: Final = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "2",
    "replica.fetch.max.bytes": str(FETCHED),
}
LEADERS, FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"


async def alter(world: World, kind: ConfigResourceType, name: str, **settings: str | None) -> None:
    operations = {True: AlterOperation.DELETE, False: AlterOperation.SET}
    changes = [
        Alteration(name=key.replace("_", "."), operation=operations[value is None], value=value)
        for key, value in settings.items()
    ]
    async with world.admin() as admin:
        await admin.alter_configs(ConfigResource(type=kind, name=name), changes)


async def throttle(world: World, side: str, replicas: str, rate: int | None = RATE) -> None:
    """Set a side's throttled replicas, and the rate of all brokers."""
    key = side.replace(".", "_")
    await alter(world, ConfigResourceType.TOPIC, "t", **{f"{key}_replicas": replicas})
    await alter(world, ConfigResourceType.BROKER, "", **{f"{key}_rate": None if rate is None else str(rate)})
    name = f"{key}_rate"
    await until(
        lambda: all(
            getattr(each.config, name) == (2**63 - 1 if rate is None else rate) for each in world.running.values()
        )
    )


async def write(world: World, count: int, size: int = FETCHED // 2 - 72) -> float:
    """Write records with acks=all; return the seconds that it takes."""
    began = world.now_s
    async with world.producer("writer", acks="all") as producer:
        for _ in range(count):
            await (await producer.send("t", b"x" * size, partition=0))
    return world.now_s - began


async def begin_move(world: World) -> tuple[int, int]:
    """Write 2 MB to two replicas; return the present follower and a third broker."""
    await create(world, replicas=2)
    await write(world, 200)
    follower = next(each for each in image(world).replicas if each != image(world).leader)
    (other,) = world.running.keys() - set(image(world).replicas)
    return follower, other


async def move(world: World, other: int) -> None:
    async with world.admin() as admin:
        await admin.alter_partition_reassignments({T0: [image(world).leader, other]})


def size(world: World, number: int) -> int:
    log = world.running[number].logs.get(T0)
    return 0 if log is None else log.segments.size


@pytest.mark.parametrize("side", [LEADERS, FOLLOWERS])
@pytest.mark.parametrize("replicas", ["*", "of brokers"])
@in_world(CONFIG, brokers=3)
async def test_a_replica_out_of_sync_is_copied_at_the_rate(world: World, side: str, replicas: str) -> None:
    """Each second after the first within a tenth of the rate, beside the fetch that is under way."""
    follower, other = await begin_move(world)
    named = image(world).leader if side == LEADERS else other
    await throttle(world, side, "*" if replicas == "*" else f"0:{named},7:{named}")
    total = size(world, image(world).leader)
    await move(world, other)
    await until(lambda: size(world, other) > 0, each_s=0.001)
    began, copied = world.now_s, [size(world, other)]
    while copied[-1] < total:
        await asyncio.sleep(1)
        copied.append(size(world, other))
        assert len(copied) < 20
    seconds = [after - before for before, after in pairwise(copied[1:-1])]
    assert len(seconds) >= 7
    assert all(abs(each - RATE) <= RATE * 0.1 + FETCHED for each in seconds), seconds
    assert world.now_s - began >= 0.9 * total / RATE
    await until(lambda: image(world).replicas == image(world).isr == (image(world).leader, other))
    assert follower not in image(world).replicas


@pytest.mark.parametrize("end", ["kill", "stop"])
@in_world(CONFIG, brokers=3)
async def test_a_throttled_replica_goes_on_at_the_rate_after_a_restart(world: World, end: str) -> None:
    """It fetches from the end of what it has."""
    _, other = await begin_move(world)
    for side in (LEADERS, FOLLOWERS):
        await throttle(world, side, "*")
    total = size(world, image(world).leader)
    await move(world, other)
    await until(lambda: size(world, other) > total // 3)
    had = size(world, other)
    await (world.kill(other) if end == "kill" else world.stop(other))
    await world.start(other)
    assert size(world, other) >= had
    await until(lambda: size(world, other) > had)
    began, left = world.now_s, total - size(world, other)
    await until(lambda: other in image(world).isr)
    assert world.now_s - began >= 0.8 * left / RATE
    await until(lambda: image(world).replicas == (image(world).leader, other))


@in_world(CONFIG, brokers=3)
async def test_replicas_in_sync_are_not_held_back(world: World) -> None:
    """They are counted: what they take of the rate, the moved replica does not get, as in Kafka."""
    _, other = await begin_move(world)
    for side in (LEADERS, FOLLOWERS):
        await throttle(world, side, "*", rate=1)
    await move(world, other)
    await until(lambda: len(image(world).replicas) == 3)
    assert await write(world, 20) < 2
    await asyncio.sleep(30)
    assert size(world, other) <= 3 * FETCHED
    assert other not in image(world).isr


@pytest.mark.parametrize("change", ["rate", "replicas"])
@in_world(CONFIG, brokers=3)
async def test_a_throttle_that_is_removed_holds_back_no_more(world: World, change: str) -> None:
    _, other = await begin_move(world)
    for side in (LEADERS, FOLLOWERS):
        await throttle(world, side, "*", rate=0)
    await move(world, other)
    await asyncio.sleep(5)
    assert 0 < size(world, other) <= FETCHED, "a rate of 0 lets one fetch through"
    for side in (LEADERS, FOLLOWERS):
        await throttle(world, side, "" if change == "replicas" else "*", None if change == "rate" else 0)
    await until(lambda: other in image(world).isr, within_s=5)


@in_world({**CONFIG, "replica.fetch.backoff.ms": "0"}, brokers=3)
async def test_a_follower_without_backoff_is_held_back_too(world: World) -> None:
    _, other = await begin_move(world)
    await throttle(world, FOLLOWERS, "*", rate=0)
    await move(world, other)
    await asyncio.sleep(5)
    assert 0 < size(world, other) <= FETCHED


@in_world({**CONFIG, "replica.fetch.min.bytes": str(5 * FETCHED)}, brokers=3)
async def test_records_read_twice_by_a_leader_are_counted_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch with fewer bytes than its minimum waits, and is read again after that."""
    _, other = await begin_move(world)
    for side in (LEADERS, FOLLOWERS):
        await throttle(world, side, "*", rate=RATE * 10)
    counted, record = Counter[ReplicationQuotaManager](), ReplicationQuotaManager.record

    def count(quota: ReplicationQuotaManager, size: int) -> None:
        counted[quota] += size
        record(quota, size)

    monkeypatch.setattr(ReplicationQuotaManager, "record", count)
    leader = world.running[image(world).leader]
    await move(world, other)
    await until(lambda: other in image(world).isr, within_s=200)
    received = counted[world.running[other].replication_quotas.follower]
    assert received == leader.logs.logs[T0].segments.size
    assert counted[leader.replication_quotas.leader] == received


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        (ConfigResourceType.BROKER, "0", {"leader_replication_throttled_rate": "-1"}),
        (ConfigResourceType.BROKER, "", {"follower_replication_throttled_rate": "fast"}),
        (ConfigResourceType.BROKER, "0", {"replica_alter_log_dirs_io_max_bytes_per_second": "1.5"}),
        (ConfigResourceType.TOPIC, "gone", {"leader_replication_throttled_replicas": "*"}),
        (ConfigResourceType.TOPIC, "t", {"leader_replication_throttled_replicas": "0:1:2"}),
    ],
)
@in_world(CONFIG, brokers=3)
async def test_a_wrong_throttle_is_refused(
    world: World, kind: ConfigResourceType, name: str, settings: dict[str, str]
) -> None:
    await registered(world)
    await world.create_topic("t")
    with pytest.raises(KafkaError) as caught:
        await alter(world, kind, name, **settings)
    expected = {"gone": ErrorCode.unknown_topic_or_partition, "t": ErrorCode.invalid_config}
    assert caught.value.code == expected.get(name, ErrorCode.invalid_request)
