"""Groups on the virtual loop: time-outs of minutes in milliseconds, every order out of a seed (M6)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest

from odradek.clients import Consumer
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import Subscription, decode_assignment, encode_subscription
from odradek.protocol.internal_records.group_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue
from odradek.simulation.world import Member, World, settled, until
from tests.world.sampling import seeds
from tests.world.scenes import in_world

PARTITIONS = 6
COORDINATORS = 3
CONFIG = {"num.partitions": str(PARTITIONS), "offsets.topic.num.partitions": str(COORDINATORS)}
SEEDS = seeds(3)
SESSION_TIMEOUT_MS = 45_000

Scenario = Callable[[World], Awaitable[None]]


async def write(world: World, topic: str, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with world.producer("writer") as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % PARTITIONS)
        await producer.flush()
    return values


async def poll(consumer: Consumer) -> None:
    while True:
        await consumer.poll(1000)


async def assert_rounds(world: World, group: str, sizes: Collection[int] = (0, PARTITIONS)) -> None:
    """Generations rise in the log, and in each of them every partition has one owner once it is assigned."""
    last = 0
    for records in (await world.read_records("__consumer_offsets", COORDINATORS)).values():
        for record in records:
            key, value = GROUP_RECORDS.decode(record.key or b"", record.value)
            if not isinstance(key, GroupMetadataKey) or key.group != group or value is None:
                continue
            assert isinstance(value, GroupMetadataValue)
            assert value.generation >= last
            last = value.generation
            owned = [
                place
                for member in value.members
                if member.assignment
                for place in decode_assignment(member.assignment).partitions
            ]
            assert len(owned) == len(set(owned))
            assert len(owned) in sizes
    assert last > 1


async def members_come_and_go(world: World) -> None:
    values = await write(world, "t", 60)
    members = [await Member(world, f"reader-{number}", "t", "g").start() for number in range(3)]
    await settled(members, PARTITIONS)
    await members.pop().stop()
    await settled(members, PARTITIONS)
    late = await Member(world, "reader-late", "t", "g").start()
    await settled([*members, late], PARTITIONS)
    for member in (*members, late):
        await member.stop()
    await assert_rounds(world, "g")
    assert {value for member in (*members, late) for value in member.read} <= set(values)


@pytest.mark.parametrize("seed", SEEDS)
def test_members_join_and_leave_and_each_partition_has_one_owner(seed: int):
    """M6, under orders of tasks, timers and packets that a seed draws."""
    digest = World(seed, CONFIG).play(members_come_and_go)
    assert digest == World(seed, CONFIG).play(members_come_and_go)


def test_the_seed_of_this_run_is_played_too(seed: int):
    assert World(seed, CONFIG).play(members_come_and_go)


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", SEEDS)
@in_world(CONFIG)
async def test_a_member_that_joins_gets_half_of_each_topic(world: World, strategy: str) -> None:
    """M3."""
    topics, counts = ["t", "u"], [PARTITIONS // 2] * 2
    consumers = [world.consumer(host, *topics, group_id="g", partition_assignment_strategy=strategy) for host in "ab"]

    def per_topic() -> list[list[int]]:
        owned = [[place.topic for place in consumer.assignment()] for consumer in consumers]
        return [[names.count(topic) for topic in topics] for names in owned]

    for topic in topics:
        await world.create_topic(topic, PARTITIONS)
    async with consumers[0], asyncio.TaskGroup() as polls:
        first = polls.create_task(poll(consumers[0]))
        await until(lambda: len(consumers[0].assignment()) == 2 * PARTITIONS)
        async with consumers[1]:
            second = polls.create_task(poll(consumers[1]))
            await until(lambda: min(len(each.assignment()) for each in consumers) == PARTITIONS)
            assert per_topic() == [counts, counts]
            second.cancel()
        first.cancel()


@pytest.mark.parametrize("seed", SEEDS)
@in_world(CONFIG)
async def test_a_disconnected_member_loses_its_partitions_at_its_session_timeout(world: World) -> None:
    """M6. Failure detection by `session.timeout.ms`; back on the network, it joins as a new member."""
    first, second = [await Member(world, host, "t", "g", session_timeout_ms=45_000).start() for host in "ab"]
    await settled([first, second], PARTITIONS)
    world.simulation.network.partition(["a"], ["broker"])
    cut_at = world.now_s
    await until(lambda: len(second.owned) == PARTITIONS)
    assert 40 < world.now_s - cut_at < 60
    world.simulation.network.heal()
    await settled([first, second], PARTITIONS)
    await first.stop()
    await second.stop()


@in_world(CONFIG, seed=1)
async def test_a_member_that_does_not_poll_is_removed_after_max_poll_interval(world: World) -> None:
    """M6. Heartbeats continue without the application; `max.poll.interval.ms` detects that it hangs."""
    first, second = [await Member(world, host, "t", "g", max_poll_interval_ms=300_000).start() for host in "ab"]
    await settled([first, second], PARTITIONS)
    await first.fall_silent()
    silent_at = world.now_s
    await asyncio.sleep(200)
    assert len(second.owned) < PARTITIONS
    await until(lambda: len(second.owned) == PARTITIONS, within_s=200)
    assert world.now_s - silent_at > 290
    await first.stop()
    await second.stop()


async def change_subscription_fast(world: World, member: Member, times: int) -> None:
    """Subscribe, unsubscribe and subscribe again, also while a JoinGroup is on its way."""
    chance = world.simulation.entropy("changes of subscriptions")
    for _ in range(times):
        if chance.random() < 0.5:
            await member.consumer.unsubscribe()
            await asyncio.sleep(chance.choice((0.0, 0.0, 0.01, 1.0)))
        member.consumer.subscribe(chance.choice((["t"], ["t", "u"], ["u"])))
        await asyncio.sleep(chance.choice((0.0, 0.001, 0.002, 0.1, 2.0)))
    member.consumer.subscribe("t")


async def drop_member_ids(world: World, times: int) -> None:
    """Be given member ids, and join with none of them, as clients do that unsubscribe meanwhile."""
    chance = world.simulation.entropy("dropped member ids")
    client = await world.client("dropper")
    message = {
        "group_id": "g",
        "session_timeout": SESSION_TIMEOUT_MS,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": encode_subscription(Subscription(topics=("t",)))}],
        "reason": None,
    }
    for _ in range(times):
        answer = await client.ask(ApiKey.JOIN_GROUP, message)
        assert answer.error_code is ErrorCode.member_id_required
        await asyncio.sleep(chance.choice((0.0, 0.5, 2.0)))
    client.close()


async def subscriptions_change_fast(world: World) -> None:
    await write(world, "t", 6)
    await write(world, "u", 6)
    timing = {"session_timeout_ms": SESSION_TIMEOUT_MS, "partition_assignment_strategy": "range"}
    members = [await Member(world, f"reader-{number}", "t", "g", **timing).start() for number in range(3)]
    await settled(members, PARTITIONS)
    await asyncio.gather(change_subscription_fast(world, members[0], 20), drop_member_ids(world, 10))
    calm_at = world.now_s
    await settled(members, PARTITIONS)
    assert world.now_s - calm_at < 15, "a round stood still"
    for member in members:
        await member.stop()
    await assert_rounds(world, "g", sizes=(0, PARTITIONS, 2 * PARTITIONS))


@pytest.mark.parametrize("seed", seeds(3))
def test_no_rebalance_stalls_when_subscriptions_change_fast_and_member_ids_are_dropped(seed: int):
    """M6. An abandoned member id delays the group by a few seconds, not by a session timeout."""
    assert World(seed, CONFIG).play(subscriptions_change_fast)


@in_world(CONFIG, seed=1)
async def test_the_next_member_begins_at_the_committed_offset(world: World) -> None:
    """M8."""
    await write(world, "t", 60)
    place = TopicPartition("t", 2)
    async with world.consumer("a", group_id="g") as consumer:
        consumer.assign([place])
        await consumer.commit({place: 7})
    await world.kill()
    await world.start()
    async with world.consumer("b", group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([place])
        records = await consumer.poll(60_000)
        assert [record.offset for record in records] == [7, 8, 9]


@in_world(CONFIG, seed=1)
async def test_a_member_of_an_old_generation_may_not_commit(world: World) -> None:
    """M6: one owner per partition per generation; what a stale owner says is refused."""
    await write(world, "t", 60)
    stale = await Member(world, "a", "t", "g", enable_auto_commit=False, max_poll_interval_ms=600_000).start()
    await settled([stale], PARTITIONS)
    await stale.fall_silent()
    world.simulation.network.partition(["a"], ["broker"])
    fresh = await Member(world, "b", "t", "g").start()
    await settled([fresh], PARTITIONS)
    world.simulation.network.heal()
    with pytest.raises(KafkaError):
        await stale.consumer.commit({TopicPartition("t", 0): 1})
    await fresh.stop()
    await stale.stop()
