"""A consumer whose partitions change leaders, lose records, or are created again (KIP-320, KIP-516; M12)."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.clients import Consumer, LogTruncationError, OffsetAndMetadata
from odradek.clients.consumer.fetching.position_validator import PositionValidator
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import TopicPartitionState
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.world import World, until
from tests.clients.scenarios import T0, create, fill, poll_all, values
from tests.world.scenes import in_world

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


async def create_replicated(world: World, partitions: int, replicas: int) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=partitions, replication_factor=replicas)


def leader_of(world: World) -> int:
    return next(number for number, broker in world.running.items() if is_led(broker))


def is_led(broker: Broker) -> bool:
    return broker.partitions.leader_or_none("t", 0) is not None


async def lose_ten_records(world: World, consumer: Consumer) -> None:
    """The consumer reads 20 records, of which the next leader has 10; the next record is number 100, at offset 10."""
    await create_replicated(world, 1, 2)
    await until(lambda: any(map(is_led, world.running.values())))
    await fill(world, 10, acks="all")
    assert await poll_all(consumer, 10) == list(range(10))
    leader = leader_of(world)
    await world.kill(1 - leader)
    await fill(world, 10, first=10)
    assert await poll_all(consumer, 10) == list(range(10, 20))
    await world.kill(leader)
    await world.start(1 - leader)
    await until(lambda: is_led(world.running[1 - leader]))
    await fill(world, 15, first=100)


@pytest.mark.parametrize("session", range(3))
def test_after_an_unclean_election_a_consumer_goes_on_where_the_logs_diverge(seed: int, session: int) -> None:
    """There are 25 records in the new log, so offset 20 is in range; without epochs 5 records would be lost unseen."""

    async def scene(world: World) -> None:
        async with world.consumer("reader") as consumer:
            consumer.assign([T0])
            await lose_ten_records(world, consumer)
            assert await poll_all(consumer, 15) == list(range(100, 115))

    World(seed + session, UNCLEAN, brokers=2).play(scene)


@in_world(UNCLEAN, brokers=2)
async def test_after_an_unclean_election_a_consumer_without_a_policy_gets_an_error(world: World) -> None:
    async with world.consumer("reader", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        await lose_ten_records(world, consumer)
        with pytest.raises(LogTruncationError) as caught:
            await consumer.poll(60_000)
        assert caught.value.position == 20
        assert caught.value.divergence is not None
        consumer.seek(T0, caught.value.divergence)
        assert await poll_all(consumer, 15) == list(range(100, 115))


def test_a_committed_offset_is_validated_with_its_epoch(seed: int) -> None:
    """The records were lost while no consumer ran; the commit has the epoch in which they were read."""

    async def scene(world: World) -> None:
        config = {"group_id": "g", "auto_offset_reset": "none"}
        async with world.consumer("reader", auto_offset_reset="earliest") as reader:
            reader.assign([T0])
            await lose_ten_records(world, reader)
            async with world.consumer("writer-of-offsets", **config) as member:
                member.assign([T0])
                await member.commit({T0: OffsetAndMetadata(20, "", 0)})
        async with world.consumer("late", **config) as consumer:
            consumer.assign([T0])
            with pytest.raises(LogTruncationError):
                await consumer.poll(60_000)

    more = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    World(seed, UNCLEAN | more, brokers=2).play(scene)


@in_world(UNCLEAN, brokers=2)
async def test_an_offset_from_the_users_own_database_is_validated_with_its_epoch(world: World) -> None:
    """Record 19 of epoch 0 was lost, so the application's offset 20 is of another history."""
    async with world.consumer("reader") as reader:
        reader.assign([T0])
        await lose_ten_records(world, reader)
    async with world.consumer("late") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, OffsetAndMetadata(20, "", 0))
        assert await poll_all(consumer, 15) == list(range(100, 115))


@in_world({"offsets.topic.num.partitions": "2"}, brokers=3)
async def test_every_record_is_returned_once_while_leaders_move(world: World) -> None:
    await create_replicated(world, 4, 3)
    found: list[int] = []
    async with world.consumer("reader", "t", group_id="g") as consumer:
        for number in range(3):
            await fill(world, 40, first=40 * number, acks="all")
            found += await poll_all(consumer, 40)
            await world.stop(number)
            await world.start(number)
        await fill(world, 40, first=120, acks="all")
        found += await poll_all(consumer, 40)
        assert await consumer.poll(5_000) == []
    assert sorted(found) == list(range(160))


@pytest.mark.parametrize("policy", ["earliest", "none"])
@in_world({"auto.create.topics.enable": "false"})
async def test_a_topic_that_was_created_again_is_another_topic(world: World, policy: str) -> None:
    """Its offsets mean other records, so the position is reset although it is in range."""
    await create(world)
    await fill(world, 10)
    async with (
        world.consumer("reader", auto_offset_reset=policy) as consumer,
        world.admin() as admin,
    ):
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await poll_all(consumer, 10) == list(range(10))
        await admin.delete_topics(["t"])
        await asyncio.sleep(1)
        await create(world)
        await fill(world, 20, first=100)
        if policy == "none":
            with pytest.raises(KafkaError, match="created again"):
                await consumer.poll(60_000)
            consumer.seek_to_beginning(T0)
        assert await poll_all(consumer, 20) == list(range(100, 120))


@in_world()
async def test_a_session_survives_a_restart_of_the_broker_and_idle_partitions_cost_nothing(world: World) -> None:
    await create(world, partitions=50)
    async with world.consumer("reader", "t") as consumer:
        await fill(world, 100)
        assert sorted(await poll_all(consumer, 100)) == list(range(100))
        await world.restart()
        await fill(world, 1, first=100)
        assert await poll_all(consumer, 1) == [100]
        assert await consumer.poll(5_000) == []
        sessions = world.broker.fetch_sessions
        assert (len(sessions), sessions.partition_count) == (1, 50)
    await asyncio.sleep(1)
    assert len(world.broker.fetch_sessions) == 0


@in_world({"max.incremental.fetch.session.cache.slots": "0"})
async def test_a_broker_that_keeps_no_sessions_is_read_in_turn(world: World) -> None:
    """Each full response has the first partitions only; the others come when those were returned."""
    await create(world, partitions=20)
    await fill(world, 2_000, batch_size=1_000)
    async with world.consumer("reader", "t", fetch_max_bytes=2_000, max_partition_fetch_bytes=1_000) as consumer:
        first = values(await consumer.poll(10_000, max_records=1))
        assert sorted(first + await poll_all(consumer, 1_999)) == list(range(2_000))


# ---- The validator ---------------------------------------------------------------------------------------------------


class Connection:
    """A connection to a broker that knows no epoch."""

    def supports(self, _: Any) -> bool:
        return True

    def version(self, _: Any) -> int:
        return 4

    async def request(self, _: Any, message: Any) -> Any:
        answers = [
            SimpleNamespace(partition=each["partition"], error_code=ErrorCode.none, end_offset=-1, leader_epoch=-1)
            for each in message["topics"][0]["partitions"]
        ]
        return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=answers)])


def test_a_seek_to_a_position_without_an_epoch_before_the_request_is_written_is_not_a_truncation() -> None:
    async def to_broker(_: int) -> Connection:
        return Connection()

    started: list[Coroutine[Any, Any, None]] = []
    clock = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0)
    cluster: Any = SimpleNamespace(
        tasks=SimpleNamespace(spawn=lambda coroutine, _: started.append(coroutine)),
        connections=SimpleNamespace(to_broker=to_broker),
        runtime=SimpleNamespace(clock=clock),
    )
    state = TopicPartitionState(TopicPartition("t", 0), current_leader_epoch=5)
    state.seek(10, 3)
    validator = PositionValidator(cluster, ConsumerSettings(auto_offset_reset="earliest"), lambda: None)
    validator.validate(1, [state])
    state.seek(7)
    asyncio.run(started.pop())
    assert (state.position, state.reset, state.is_fetching) == (7, None, False)
