"""The comparison of replicas with their leader at the end of a seed."""

import msgspec
import pytest

from odradek.metadata import paths
from odradek.metadata.nodes import TopicNode
from odradek.model import TopicPartition
from odradek.simulation.checks.replicas import HighWatermarks
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from tests.world.scenes import in_world

LAG = {"replica.lag.time.max.ms": "3000"}


@in_world(LAG, seed=1, brokers=3)
async def test_a_replica_that_lacks_a_record_is_a_finding_unless_the_tree_has_removed_it(world: World) -> None:
    """The leader and the replica may learn later than the tree that a reassignment is complete."""
    await create_topic(world, "t", 1, replicas=3)
    (leader,) = world.led
    removed = next(iter(leader.replication.remotes))
    others = [host for number, host in enumerate(world.hosts) if number != removed]
    world.simulation.network.partition([world.hosts[removed]], others)
    async with world.producer("writer") as producer:
        await (await producer.send("t", b"1", partition=0))
    check = HighWatermarks(world, ["t"])
    assert check.findings() == [f"broker {removed} has other batches of t-0 from 0 to 1 than its leader"]
    path = paths.topic("t")
    record = world.tree.find(path)
    assert record is not None
    node = TopicNode.decode(path, record.data)
    left = tuple(each for each in node.replicas[0] if each != removed)
    reassigned = msgspec.structs.replace(node, replicas={0: left})
    world.tree.save(path, record._replace(data=reassigned.encode()))
    image = world.running[removed].image.partition(TopicPartition("t", 0))
    assert image is not None
    assert removed in image.replicas
    assert check.findings() == []
    world.tree.save(path, record)
    world.simulation.network.heal()


@in_world(LAG, seed=1, brokers=3)
async def test_a_member_of_the_isr_without_records_that_an_earlier_leader_had_committed_is_a_finding(
    world: World,
) -> None:
    await create_topic(world, "t", 1, replicas=3)
    check = HighWatermarks(world, ["t"])
    check.look()
    async with world.producer("writer") as producer:
        await (await producer.send("t", b"1", partition=0))
    (first,) = world.led
    check.look()
    first.replication.high_watermark += 5  # it had committed more than it has
    await world.kill(first.replication.broker_id)
    await until(lambda: bool(world.led))
    with pytest.raises(BrokenPromiseError, match="with the log end offset 1, and 6 was committed"):
        check.look()


@in_world(LAG, seed=1, brokers=3)
async def test_a_replica_that_begins_elsewhere_than_its_leader_for_ever_is_a_finding(world: World) -> None:
    await create_topic(world, "t", 1, replicas=3)
    async with world.producer("writer") as producer:
        await (await producer.send("t", b"1", partition=0))
    check = HighWatermarks(world, ["t"])
    assert await check.starts(but="") == []
    (leader,) = world.led
    follower = next(iter(leader.replication.remotes))
    log = world.running[follower].logs.get(TopicPartition("t", 0))
    assert log is not None
    await until(lambda: log.high_watermark == 1)
    log.advance_log_start_offset(1)
    assert await check.starts(but="") == [f"broker {follower} has t-0 from 1, and its leader from 0"]
    assert await check.starts(but="t") == []
