"""Requests of administrators' tools to brokers with replicas of a partition, in virtual time."""

from typing import Any

from odradek.metadata.image import PartitionImage
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import T0, controller, create


def images(world: World) -> list[PartitionImage]:
    """The partition as every broker knows it, once it has a leader."""
    found = [broker.image.partition(T0) for broker in world.running.values()]
    return [image for image in found if image is not None and image.has_leader]


async def elect(world: World, *topics: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
    client = await world.client("tool", broker=controller(world))
    wanted = [{"topic": topic, "partitions": [number]} for topic, number in topics]
    message = {"election_type": 0, "topic_partitions": wanted, "timeout": 0}
    answer = await client.ask(ApiKey.ELECT_LEADERS, message)
    assert answer.error_code == ErrorCode.none
    client.close()
    return {
        (result.topic, each.partition_id): each.error_code
        for result in answer.replica_election_results
        for each in result.partition_result
    }


@in_world(seed=3, brokers=3)
async def test_an_election_with_a_timeout_of_zero_returns_a_result_per_partition(world: World) -> None:
    await create(world)
    preferred = world.running[0].image.topics["t"].partitions[0].replicas[0]
    await world.kill(preferred)
    await until(lambda: all(each.image.partition(T0).leader not in {preferred, -1} for each in world.running.values()))
    await world.start(preferred)
    await until(lambda: [len(image.isr) for image in images(world)] == [3, 3, 3])
    expected = {("t", 0): ErrorCode.none, ("u", 0): ErrorCode.unknown_topic_or_partition}
    assert await elect(world, *expected) == expected
    await until(lambda: {image.leader for image in images(world)} == {preferred})
    assert await elect(world, ("t", 0)) == {("t", 0): ErrorCode.election_not_needed}


@in_world(seed=4, brokers=3)
async def test_every_replica_describes_the_producers_of_its_log(world: World) -> None:
    await create(world, replicas=2)
    async with world.producer("writer", enable_idempotence=True) as producer:
        await producer.send("t", b"x", partition=0)
    await until(
        lambda: [each.logs.logs[T0].written_offset for each in world.running.values() if T0 in each.logs.logs] == [1, 1]
    )
    topics = [{"name": "t", "partition_indexes": [0, 1]}]
    told: dict[int, Any] = {}
    for number in world.running:
        client = await world.client("tool", broker=number)
        (topic,) = (await client.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": topics})).topics
        first, second = topic.partitions
        assert second.error_code == ErrorCode.unknown_topic_or_partition
        told[number] = first.error_code, [(each.producer_id, each.last_sequence) for each in first.active_producers]
        client.close()
    replicas = world.running[0].image.topics["t"].partitions[0].replicas
    assert [told[number][0] for number in replicas] == [ErrorCode.none] * 2
    assert told[replicas[0]] == told[replicas[1]]
    assert len(told[replicas[0]][1]) == 1
    (other,) = told.keys() - set(replicas)
    assert told[other] == (ErrorCode.not_leader_or_follower, [])
