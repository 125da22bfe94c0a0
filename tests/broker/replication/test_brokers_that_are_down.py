"""Topics created while a broker is down: placed on it, led by others, copied by it when it returns."""

import pytest

from odradek.clients.admin import NewTopic
from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode, TopicNode
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World, until
from tests.world.sampling import seeds
from tests.world.scenes import played_by

SEEDS = seeds(2)
CONFIG = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "3",
}


def replicas(world: World, topic: str) -> dict[int, tuple[int, ...]]:
    path = paths.topic(topic)
    record = world.tree.find(path)
    assert record is not None
    return dict(TopicNode.decode(path, record.data).replicas)


def state(world: World, topic: str, number: int) -> PartitionStateNode | None:
    path = paths.partition_state(TopicPartition(topic, number))
    record = world.tree.find(path)
    return None if record is None else PartitionStateNode.decode(path, record.data)


async def registered(world: World) -> None:
    await until(lambda: all(len(broker.image.brokers) == len(world.hosts) for broker in world.running.values()))


def play(seed: int, scenario, *, brokers: int = 3) -> None:
    World(seed, CONFIG, brokers=brokers, noticed_at_once=seed % 2 == 0).play(scenario)


async def until_gone(world: World, gone: int) -> None:
    await until(lambda: all(gone not in broker.image.brokers for broker in world.running.values()))


@pytest.mark.parametrize("seed", SEEDS)
@played_by(play)
async def test_a_topic_is_created_on_a_broker_that_is_down_and_copied_when_it_is_back(
    world: World, *, seed: int
) -> None:
    """M1, M10. Records acknowledged meanwhile with acks=all are on the two live brokers."""
    await registered(world)
    gone = seed % 3
    await world.kill(gone)
    await until_gone(world, gone)
    async with world.admin() as client:
        await client.create_topic("t", partitions=4, replication_factor=3)
        await client.create_partitions("t", 6)
        assert all(set(each) == {0, 1, 2} and each[-1] == gone for each in replicas(world, "t").values())
        states = [state(world, "t", number) for number in range(6)]
        assert all(each is not None and set(each.isr) == {0, 1, 2} - {gone} for each in states)
        assert {each.leader for each in states if each is not None} == {0, 1, 2} - {gone}
    async with world.producer("writer", acks="all") as producer:
        for number in range(6):
            await producer.send("t", b"v", partition=number)
        await producer.flush()
    await world.start(gone)
    await until(lambda: all(len(each.isr) == 3 for number in range(6) if (each := state(world, "t", number))))
    logs = world.running[gone].logs
    for number in range(6):
        log = logs.get(TopicPartition("t", number))
        assert log is not None
        assert log.log_end_offset == 1


@pytest.mark.parametrize("seed", SEEDS)
@played_by(play)
async def test_auto_created_topics_do_not_wait_for_a_broker_that_is_down(world: World) -> None:
    """M6. `__consumer_offsets` has three replicas, and a group is coordinated with two brokers alive."""
    await registered(world)
    await world.kill(2)
    await until_gone(world, 2)
    async with world.producer("writer") as producer:
        await producer.send("by-itself", b"v")
        await producer.flush()
    async with world.consumer("reader", "by-itself", group_id="g") as consumer:
        assert [record.value for record in await consumer.poll(60_000)] == [b"v"]
    assert {len(each) for each in replicas(world, "__consumer_offsets").values()} == {3}
    assert {len(each) for each in replicas(world, "by-itself").values()} == {3}


def test_an_unregistered_broker_gets_no_replicas_and_a_larger_replication_factor_is_refused() -> None:
    """M10."""

    async def scenario(world: World) -> None:
        await registered(world)
        async with world.admin() as client:
            with pytest.raises(KafkaError, match="is alive, and would register again") as raised:
                await client.unregister_broker(2)
            assert raised.value.code == ErrorCode.invalid_request
            with pytest.raises(KafkaError, match=r"only 3 broker\(s\) are registered"):
                await client.create_topic("t", replication_factor=4)
            await world.stop(2)
            await until_gone(world, 2)
            cluster = await client.describe_cluster(include_fenced_brokers=True)
            assert [(each.broker_id, each.is_fenced) for each in cluster.brokers] == [(0, False), (1, False), (2, True)]
            assert [each.broker_id for each in (await client.describe_cluster()).brokers] == [0, 1]
            with pytest.raises(KafkaError) as raised:
                await client.create_topics([NewTopic(name="t", assignments={0: [2]})])
            assert raised.value.code == ErrorCode.invalid_replica_assignment
            await client.unregister_broker(2)
            with pytest.raises(KafkaError) as raised:
                await client.unregister_broker(2)
            assert raised.value.code == ErrorCode.broker_id_not_registered
            with pytest.raises(KafkaError, match=r"only 2 broker\(s\) are registered") as raised:
                await client.create_topic("t", replication_factor=3)
            assert raised.value.code == ErrorCode.invalid_replication_factor
            await world.start(2)
            await registered(world)
            await client.create_topic("t", replication_factor=3)

    play(0, scenario)


@played_by(play)
async def test_every_broker_lists_fenced_brokers_on_request(world: World) -> None:
    """M10. KIP-1073: from version 2 of DescribeCluster on."""
    await registered(world)
    await world.kill(1)
    await until_gone(world, 1)
    for number in sorted(world.running):
        client = await world.client("asker", broker=number)
        for version, fenced in ((1, False), (2, False), (2, True)):
            message = {
                "include_cluster_authorized_operations": False,
                "endpoint_type": 1,
                "include_fenced_brokers": fenced,
            }
            answer = await client.ask(ApiKey.DESCRIBE_CLUSTER, message, version)
            found = {each.broker_id: (each.host, getattr(each, "is_fenced", False)) for each in answer.brokers}
            wanted = {0: ("broker-0", False), 2: ("broker-2", False)}
            assert found == (wanted | {1: ("broker-1", True)} if fenced else wanted)
        client.close()
