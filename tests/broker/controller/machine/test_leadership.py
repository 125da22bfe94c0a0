"""Elections that somebody asks for, brokers that stop, and the balance of leaders (M1, M9, M10)."""

import pytest
from msgspec.structs import replace

from odradek.broker.controller.machine.elections import (
    ElectionContext,
    ElectionType,
    balance_preferred_leaders,
    elect_on_demand,
    plan_preferred_elections,
    shut_down,
)
from odradek.metadata import paths
from odradek.metadata.image import StateChange
from odradek.metadata.nodes import NO_LEADER, PreferredReplicaElectionNode
from odradek.metadata.store import Delete
from odradek.model import ErrorCode, KafkaError, TopicPartition
from tests.broker.controller.machine.partition_world import CONTROLLER_EPOCH, image, partition, topic, written

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
KEY = TopicPartition("t", 0)


def context(shutting_down=()):
    return ElectionContext(controller_epoch=CONTROLLER_EPOCH, shutting_down=shutting_down)


def outcome(each):
    return each.code if isinstance(each, KafkaError) else (each.state.leader, each.state.isr)


def ask(live, each, election_type, shutting_down=()):
    found = elect_on_demand(image(live, topic(each)), [KEY], election_type, context(shutting_down))
    return outcome(found[KEY])


@pytest.mark.parametrize(
    ("live", "each", "decided"),
    [
        ({1, 2}, partition(1, 2, leader=2), (1, (1, 2))),
        ({1, 2}, partition(1, 2, leader=NO_LEADER), (1, (1, 2))),
        ({1, 2}, partition(1, 2), ErrorCode.election_not_needed),
        ({1, 2}, partition(1, 2, isr=(2,)), ErrorCode.preferred_leader_not_available),
        ({2}, partition(1, 2, leader=2), ErrorCode.preferred_leader_not_available),
    ],
)
def test_the_preferred_leader_is_the_first_replica(live, each, decided):
    assert ask(live, each, PREFERRED) == decided


def test_a_broker_that_shuts_down_is_not_elected():
    away = partition(1, 2, leader=2)
    assert ask({1, 2}, away, PREFERRED, shutting_down={1}) is ErrorCode.preferred_leader_not_available
    lost = partition(1, 2, 3, isr=(1,), leader=NO_LEADER)
    assert ask({2, 3}, lost, UNCLEAN, shutting_down={2}) == (3, (3,))


@pytest.mark.parametrize(
    ("live", "each", "decided"),
    [
        ({2, 3}, partition(1, 2, 3, isr=(1,), leader=NO_LEADER), (2, (2,))),
        ({2, 3}, partition(1, 2, 3, isr=(1,)), (2, (2,))),
        ({2, 3}, partition(1, 2, 3, isr=(3, 1), leader=1), (3, (3,))),
        ({1, 2}, partition(1, 2, isr=(1,)), ErrorCode.election_not_needed),
        (set(), partition(1, 2, isr=(1,), leader=NO_LEADER), ErrorCode.eligible_leaders_not_available),
        ({3}, partition(1, 2, isr=(1,)), ErrorCode.eligible_leaders_not_available),
    ],
)
def test_an_unclean_election_elects_a_live_replica(live, each, decided):
    assert ask(live, each, UNCLEAN) == decided


def test_partitions_that_are_not_there_or_go_are_named():
    cluster = image({1, 2}, topic(partition(1, 2, leader=2)), deleting={"going"})
    keys = [KEY, TopicPartition("t", 1), TopicPartition("gone", 0), TopicPartition("going", 0)]
    found = elect_on_demand(cluster, keys, PREFERRED, context())
    assert [outcome(found[key]) for key in keys] == [
        (1, (1, 2)),
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
    ]


def test_an_election_of_all_partitions_returns_those_that_needed_one():
    cluster = image({1, 2}, topic(partition(1, 2), partition(1, 2, leader=2), partition(1, 2, isr=(2,))))
    found = elect_on_demand(cluster, None, PREFERRED, context())
    assert {key.partition: outcome(each) for key, each in found.items()} == {
        1: (1, (1, 2)),
        2: ErrorCode.preferred_leader_not_available,
    }


def test_the_node_requests_preferred_leaders_and_is_deleted_last():
    cluster = image({1, 2}, topic(partition(1, 2, leader=2), partition(1, 2, isr=(2,))))
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}'
    node = PreferredReplicaElectionNode.decode("", data)
    changes, errors, last = plan_preferred_elections(cluster, node, 6, context())
    assert [outcome(each) for each in changes] == [(1, (1, 2))]
    assert changes[0].state.leader_epoch == 6
    assert [each.code for each in errors] == [ErrorCode.preferred_leader_not_available]
    assert last == Delete(path=paths.PREFERRED_REPLICA_ELECTION, version=6)
    written(cluster, [each.operation() for each in changes])


def stop(cluster, broker_id=1, epoch=-1, shutting_down=()):
    return shut_down(cluster, broker_id, epoch, context(shutting_down))


def test_a_broker_that_stops_hands_over_what_it_leads_and_leaves_every_isr():
    cluster = image({1, 2, 3}, topic(partition(1, 2, 3), partition(2, 1), partition(2, 3), partition(3, 1, isr=(3,))))
    decided = stop(cluster, epoch=101)
    assert {each.partition.partition: outcome(each) for each in decided.changes} == {0: (2, (2, 3)), 1: (2, (2,))}
    assert [key.partition for key in decided.stop] == [0, 1, 3]
    assert decided.remaining == ()
    after = written(cluster, [each.operation() for each in decided.changes])
    assert stop(after).changes == ()


def test_a_partition_without_another_possible_leader_keeps_its_leader():
    alone, single = partition(1, 2, isr=(1,)), partition(1)
    decided = stop(image({1, 2}, topic(alone, single)))
    assert (decided.changes, decided.stop, decided.remaining) == ((), (), (KEY,))
    # The other member of the ISR is dead, or about to stop as well.
    assert stop(image({1}, topic(partition(1, 2)))).remaining == (KEY,)
    assert stop(image({1, 2}, topic(partition(1, 2))), shutting_down={2}).remaining == (KEY,)


def test_a_follower_of_a_leader_that_shuts_down_stays_in_the_isr():
    decided = stop(image({1, 2}, topic(partition(2, 1))), shutting_down={2})
    assert (decided.changes, decided.remaining) == ((), ())


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(4, -1, ErrorCode.broker_not_available), (1, 100, ErrorCode.stale_broker_epoch)],
)
def test_only_a_registered_broker_can_shut_down(broker_id, epoch, code):
    with pytest.raises(KafkaError) as raised:
        stop(image({1, 2}, topic(partition(1, 2))), broker_id, epoch)
    assert raised.value.code is code


def test_leaders_are_balanced_where_more_than_so_many_percent_are_elsewhere():
    away, home = partition(1, 2, leader=2), partition(1, 2)
    cluster = image({1, 2}, topic(away, *(home for _ in range(9))))

    def balanced(percentage, cluster=cluster, shutting_down=()):
        found = balance_preferred_leaders(cluster, percentage, context(shutting_down))
        return [(each.partition.partition, *outcome(each)) for each in found]

    assert balanced(10) == []
    assert balanced(9) == [(0, 1, (1, 2))]
    assert balanced(0, image({1, 2}, topic(home, partition(2, 1)))) == []
    assert balanced(0, replace(cluster, brokers=image({2}).brokers)) == []
    assert balanced(0, image({1, 2}, topic(partition(1, 2, isr=(2,))))) == []
    assert balanced(0, shutting_down={1}) == []
    assert all(isinstance(each, StateChange) for each in balance_preferred_leaders(cluster, 0, context()))
