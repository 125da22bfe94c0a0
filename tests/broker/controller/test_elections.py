"""Elections when brokers start and stop (M1), and the first states of partitions."""

from uuid import UUID

import pytest

from odradek.broker.controller.controller_epoch import ControllerContext
from odradek.broker.controller.machine.elections import ElectionContext, elect, elections
from odradek.broker.controller.machine.topic_creation import initial_operations, needs_initialization
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.metadata.nodes import RECOVERED, RECOVERING, PartitionStateNode
from odradek.model import TopicPartition


def partition(leader: int, isr, replicas=(1, 2, 3), **more) -> PartitionImage:
    return PartitionImage(leader=leader, leader_epoch=5, replicas=replicas, isr=isr, state_version=8, **more)


def test_a_broker_that_was_shut_down_and_is_back_may_lead_again() -> None:
    context = ControllerContext(wake_tasks=lambda: None)
    context.add_shutting_down(BrokerImage(broker_id=1, endpoints=(), epoch=5))
    context.brokers_changed({1: BrokerImage(broker_id=1, endpoints=(), epoch=5)})
    assert context.shutting_down == {1}
    context.brokers_changed({1: BrokerImage(broker_id=1, endpoints=(), epoch=6)})
    assert not context.shutting_down


@pytest.mark.parametrize(
    ("leader", "isr", "live", "unclean", "decided"),
    [
        (1, (1, 2), {1, 2, 3}, False, None),
        (1, (1, 2), {1, 3}, False, (1, (1,))),
        (1, (1, 2), {2, 3}, False, (2, (2,))),
        (1, (1, 3, 2), {2, 3}, False, (2, (3, 2))),
        (1, (1, 2), {3}, False, (-1, (1, 2))),
        (1, (1, 2), {3}, True, (3, (3,))),
        (1, (1,), set(), True, (-1, (1,))),
        (-1, (1, 2), {3}, False, None),
        (-1, (1, 2), {2, 3}, False, (2, (2,))),
        (-1, (1,), {1, 2}, False, (1, (1,))),
        (1, (9, 1), {9}, False, (9, (9,))),
    ],
)
def test_the_first_replica_in_sync_and_alive_leads(leader, isr, live, unclean, decided) -> None:
    assert elect(partition(leader, isr), live, unclean=unclean) == decided


@pytest.mark.parametrize(
    ("isr", "live", "decided"),
    [
        ((1, 2), {1, 2}, (2, (1, 2))),
        ((1,), {1, 2}, (1, (1,))),
        ((3,), {1, 2}, (2, (2,))),
        ((3,), {1}, (-1, (3,))),
    ],
)
def test_a_broker_that_shuts_down_leads_only_if_no_other_is_in_sync(isr, live, decided) -> None:
    assert elect(partition(3, isr), live, unclean=True, shutting_down={1}) == decided


@pytest.mark.parametrize(
    ("without_log", "isr", "decided"),
    [
        ({1}, (1, 2, 3), (-1, (2, 3))),
        ({1, 3}, (1, 2, 3), (-1, (2,))),
        ({1, 2}, (1, 2), (-1, (1, 2))),
    ],
)
def test_a_live_replica_without_a_log_leaves_an_isr_of_others(without_log, isr, decided) -> None:
    assert elect(partition(1, isr), set(), unclean=False, without_log=without_log) == decided
    offline = {broker_id: {TopicPartition("a", 0)} for broker_id in without_log}
    topics = [topic("a", [partition(1, isr)])]
    [election] = held(without_log, topics, offline=offline)
    assert (election.state.leader, election.state.isr) == decided


@pytest.mark.parametrize(
    ("full", "isr", "decided"),
    [
        ({1}, (1, 2, 3), (2, (2, 3))),
        ({2}, (1, 2, 3), (1, (1, 3))),
        ({1, 2}, (1, 2, 3), (3, (3,))),
        ({1, 2, 3}, (1, 2, 3), None),
        ({1}, (1,), None),
        ({1}, (1, 4), (1, (1,))),
    ],
)
def test_a_full_replica_leads_only_while_no_live_member_of_the_isr_has_space(full, isr, decided) -> None:
    topics = [topic("a", [partition(1, isr)])]
    on_full = {broker_id: {TopicPartition("a", 0)} for broker_id in full}
    found = held({1, 2, 3}, topics, full=on_full)
    assert [(each.state.leader, each.state.isr) for each in found] == ([] if decided is None else [decided])


@pytest.mark.parametrize(("isr", "decided"), [((1, 2), []), ((1, 2, 3), [(3, (2, 3))])])
def test_a_full_replica_stays_in_the_isr_if_the_others_shut_down(isr, decided) -> None:
    topics = [topic("a", [partition(1, isr)])]
    full = {1: {TopicPartition("a", 0)}}
    found = held({1, 2, 3}, topics, shutting_down={2}, full=full)
    assert [(each.state.leader, each.state.isr) for each in found] == decided


def image(live, topics) -> ClusterImage:
    endpoints = (ListenerAddress("PLAINTEXT", "host", 1),)
    brokers = {broker_id: BrokerImage(broker_id=broker_id, endpoints=endpoints) for broker_id in live}
    return ClusterImage(brokers=brokers).with_topics({topic.name: topic for topic in topics})


def held(live, topics, config=None, **more):
    context = ElectionContext(controller_epoch=9, **more)
    return list(elections(image(live, topics), topics, config or BrokerConfig(), context))


def topic(name: str, partitions, config=None) -> TopicImage:
    return TopicImage(
        name=name, topic_id=UUID(int=len(name)), partitions=dict(enumerate(partitions)), config=config or {}
    )


def test_an_election_raises_the_leader_epoch_and_names_the_version_it_replaces() -> None:
    topics = [topic("a", [partition(1, (1, 2)), partition(2, (2,))])]
    [election] = held({2}, topics)
    assert election.partition == TopicPartition("a", 0)
    assert election.state == PartitionStateNode(leader=2, leader_epoch=6, isr=(2,), controller_epoch=9)
    operation = election.operation()
    assert (operation.path, operation.version) == ("/brokers/topics/a/partitions/0/state", 8)


def test_a_leader_that_was_not_in_sync_is_recovering_and_its_successor_out_of_the_isr_is_as_it_was() -> None:
    """KIP-704."""
    config = {"unclean.leader.election.enable": "true"}
    recovering = partition(1, (1, 2), leader_recovery_state=RECOVERING)
    topics = [topic("a", [partition(1, (1,)), partition(1, (1, 2)), recovering], config)]
    elected = {each.partition.partition: each.state for each in held({2}, topics)}
    assert {number: (state.leader, state.leader_recovery_state) for number, state in elected.items()} == {
        0: (2, RECOVERING),
        1: (2, RECOVERED),
        2: (2, RECOVERING),
    }
    offline = {each.state for each in held(set(), topics)}
    assert sorted((state.leader, state.leader_recovery_state) for state in offline) == [(-1, 0), (-1, 0), (-1, 1)]


def test_unclean_election_is_allowed_by_the_topic_or_the_broker() -> None:
    lost = partition(1, (1,))
    topics = [
        topic("a", [lost]),
        topic("bb", [lost], {"unclean.leader.election.enable": "true"}),
        topic("ccc", [lost], {"unclean.leader.election.enable": "perhaps"}),
    ]
    decided = {each.partition.topic: each.state.leader for each in held({3}, topics)}
    assert decided == {"a": -1, "bb": 3, "ccc": -1}
    careless = BrokerConfig(unclean_leader_election_enable=True)
    assert {each.state.leader for each in held({3}, topics[:1], careless)} == {3}


def test_a_partition_without_a_readable_state_is_left_alone() -> None:
    unread = PartitionImage(leader=-1, leader_epoch=-1, replicas=(1,), isr=(1,), state_version=3)
    topics = [topic("a", [unread])]
    assert held({1}, topics) == []
    assert not needs_initialization(topics[0])


def test_the_first_state_has_all_that_are_alive_in_sync() -> None:
    new = [
        PartitionImage(leader=-1, leader_epoch=-1, replicas=replicas, isr=replicas)
        for replicas in ((1, 2), (3, 2), (3,))
    ]
    wanted = topic("a", [*new, partition(1, (1,))])
    assert needs_initialization(wanted)
    root, groups = paths.topic("a"), list(initial_operations(wanted, {1, 2}, 4, frozenset()))
    assert [[operation.path for operation in group] for group in groups] == [
        [f"{root}/partitions", f"{root}/partitions/0", f"{root}/partitions/0/state"],
        [f"{root}/partitions/1", f"{root}/partitions/1/state"],
        [f"{root}/partitions/2", f"{root}/partitions/2/state"],
    ]
    states = [PartitionStateNode.decode("", group[-1].data) for group in groups]
    assert [(state.leader, state.isr) for state in states] == [(1, (1, 2)), (2, (2,)), (-1, (3,))]
    assert {(state.leader_epoch, state.controller_epoch) for state in states} == {(0, 4)}


def test_nodes_of_a_topic_that_exist_are_not_created_again() -> None:
    wanted = topic("a", [PartitionImage(leader=-1, leader_epoch=-1, replicas=(1,), isr=(1,))])
    there = {f"{paths.topic('a')}/partitions", f"{paths.topic('a')}/partitions/0"}
    [[operation]] = initial_operations(wanted, {1}, 1, there)
    assert operation.path == f"{paths.topic('a')}/partitions/0/state"


def test_a_topic_without_an_id_needs_one() -> None:
    unnamed = TopicImage(name="a", topic_id=UNNAMED, partitions={0: partition(1, (1,))})
    assert needs_initialization(unnamed)
