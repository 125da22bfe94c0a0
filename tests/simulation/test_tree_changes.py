"""Each change of the tree that breaks a rule is a finding, at once."""

import pytest
from msgspec.structs import replace

from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode, PartitionStateNode, ProducerIdBlockNode, TopicNode
from odradek.metadata.store import Create, Operation, SetData
from odradek.model import TopicPartition
from odradek.simulation.world import World

PLACE = TopicPartition("t", 0)
STATE = PartitionStateNode(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7)
TOPIC = TopicNode(replicas={0: (1, 2, 3)})


def world_with(**more: bytes) -> World:
    world = World(1)
    nodes = {
        "/brokers": b"", paths.TOPICS: b"", paths.topic("t"): TOPIC.encode(), paths.partitions("t"): b"",
        paths.partition(PLACE): b"", paths.partition_state(PLACE): STATE.encode(), paths.CONTROLLER_EPOCH: b"7",
        paths.CONFIG: b"", paths.TOPIC_CONFIGS: b"", paths.BROKER_IDS: b"", paths.broker(3): b"{}", **more,
    }  # fmt: skip
    commit(world, *(Create(path=path, data=data) for path, data in nodes.items()))
    assert not world.tree_changes.findings
    return world


def commit(world: World, *operations: Operation) -> None:
    async def scene(world: World) -> None:
        world.tree.commit(operations, 0)

    world.run(scene)


@pytest.mark.parametrize(
    ("state", "finding"),
    [
        (replace(STATE, leader=3, leader_epoch=5), "the leader is not in the ISR"),
        (replace(STATE, isr=(1, 4), leader_epoch=5), "the ISR has brokers that are no replicas"),
        (replace(STATE, leader_epoch=3), "the leader epoch went back"),
        (replace(STATE, leader=2), "the leader epoch stayed"),
        (replace(STATE, leader_epoch=6), "the leader epoch skips"),
        (replace(STATE, isr=(1,), controller_epoch=6), "another controller had been elected"),
        (replace(STATE, leader=3, isr=(3,), leader_epoch=5, leader_recovery_state=1), "had an unclean election"),
        (replace(STATE, isr=(1, 2), leader_recovery_state=1), "a leader that recovers has followers in sync"),
    ],
)
def test_a_partition_state_that_breaks_a_rule_is_a_finding(state: PartitionStateNode, finding: str) -> None:
    world = world_with()
    commit(world, SetData(path=paths.partition_state(PLACE), data=state.encode()))
    assert any(finding in each for each in world.tree_changes.findings), world.tree_changes.findings


@pytest.mark.parametrize(
    "state",
    [
        replace(STATE, isr=(1,)),
        replace(STATE, isr=(1, 2, 3)),
        replace(STATE, leader=2, isr=(2,), leader_epoch=5),
        replace(STATE, leader=-1, leader_epoch=5),
    ],
)
def test_an_ordinary_change_is_none(state: PartitionStateNode) -> None:
    world = world_with()
    commit(world, SetData(path=paths.partition_state(PLACE), data=state.encode()))
    assert not world.tree_changes.findings


def test_an_unclean_election_that_the_topic_allows_is_noted_and_must_be_marked() -> None:
    world = world_with()
    config = ConfigNode(config={"unclean.leader.election.enable": "true"}).encode()
    commit(world, Create(path=paths.topic_config("t"), data=config))
    state = replace(STATE, leader=3, isr=(3,), leader_epoch=5)
    commit(world, SetData(path=paths.partition_state(PLACE), data=state.encode()))
    assert ["an unclean election is not marked" in each for each in world.tree_changes.findings] == [True]
    assert world.tree_changes.unclean_epoch(PLACE) == 5


def test_a_reassignment_that_ends_before_its_target_is_in_sync_is_a_finding() -> None:
    world = world_with()
    moving = replace(TOPIC, adding_replicas={0: (3,)}, removing_replicas={0: (1,)})
    commit(world, SetData(path=paths.topic("t"), data=moving.encode()))
    assert not world.tree_changes.findings
    moved = TopicNode(replicas={0: (2, 3)})
    state = replace(STATE, leader=2, isr=(2,), leader_epoch=5)
    commit(
        world,
        SetData(path=paths.topic("t"), data=moved.encode()),
        SetData(path=paths.partition_state(PLACE), data=state.encode()),
    )
    assert world.tree_changes.findings == ["the reassignment of t-0 to [2, 3] ended with the ISR [2]"]


def test_a_broker_without_a_registration_does_not_join_an_isr() -> None:
    world = world_with()
    commit(world, SetData(path=paths.topic("t"), data=TopicNode(replicas={0: (1, 2, 4)}).encode()))
    commit(world, SetData(path=paths.partition_state(PLACE), data=replace(STATE, isr=(1, 2, 4)).encode()))
    assert world.tree_changes.findings == ["broker 4 joins the ISR of t-0, and is not registered"]


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (paths.CONTROLLER_EPOCH, b"7", b"6"),
        (
            paths.LATEST_PRODUCER_ID_BLOCK,
            ProducerIdBlockNode(broker_id=0, first=0, last=999).encode(),
            ProducerIdBlockNode(broker_id=1, first=0, last=999).encode(),
        ),
        ("/consumers/g/offsets/t/0", b"5", b"4"),
        ("/consumers/g/owners/t/0", b"c-0", b"c-1"),
    ],
)
def test_a_number_that_goes_back_and_a_claim_that_is_taken_are_findings(path: str, before: bytes, after: bytes) -> None:
    world = world_with()
    parts = path.split("/")[1:-1]
    above = ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]
    commit(world, *(Create(path=each) for each in above if world.tree.find(each) is None))
    if world.tree.find(path) is None:
        commit(world, Create(path=path, data=before))
    commit(world, SetData(path=path, data=after))
    assert len(world.tree_changes.findings) == 1
