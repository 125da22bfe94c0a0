"""Whether a topic can have more partitions, and where they go."""

from collections import Counter
from uuid import UUID

import pytest

from odradek.broker.controller.machine.topic_creation import (
    MAX_PARTITIONS,
    NewPartitions,
    PartitionLimit,
    plan_partitions,
)
from odradek.broker.turns import at_once
from odradek.config.listeners import ListenerAddress
from odradek.metadata.cluster_load import ClusterLoad
from odradek.metadata.image import BrokerImage, PartitionImage, TopicImage
from odradek.model import ErrorCode, KafkaError

ENDPOINTS = (ListenerAddress("PLAINTEXT", "host", 1),)
BROKERS = {broker_id: BrokerImage(broker_id=broker_id, endpoints=ENDPOINTS) for broker_id in (1, 2, 3)}


def topic(*replicas: tuple[int, ...], name: str = "t", removing: tuple[int, ...] = ()) -> TopicImage:
    partitions = {
        number: PartitionImage(leader=each[0], leader_epoch=0, replicas=each, isr=each, removing_replicas=removing)
        for number, each in enumerate(replicas)
    }
    return TopicImage(name=name, topic_id=UUID(int=1), partitions=partitions)


def plan(image: TopicImage | None, count: int, *assignment: tuple[int, ...], brokers=BROKERS, away=()):
    return planned(NewPartitions(topic="t", count=count, assignment=assignment or None), image, brokers, away)


def planned(wanted: NewPartitions, image: TopicImage | None, brokers=BROKERS, away=()):
    room = PartitionLimit()
    return at_once(plan_partitions(wanted, image, brokers=brokers, away=away, load=ClusterLoad(), room=room))


def test_new_partitions_go_where_the_topic_has_the_fewest() -> None:
    """M10."""
    planned = plan(topic((1,), (1,), (2,)), 6)
    assert sorted(planned) == [3, 4, 5]
    assert Counter(replicas[0] for replicas in planned.values()) == {3: 2, 2: 1}


def test_new_partitions_have_as_many_replicas_as_the_first_one() -> None:
    planned = plan(topic((1, 2), (2, 3)), 4)
    assert {len(set(replicas)) for replicas in planned.values()} == {2}
    assert {planned[2][0], planned[3][0]} == {3, 1}


def test_replicas_on_their_way_out_do_not_count() -> None:
    assert len(plan(topic((1, 2, 3), removing=(1,)), 2)[1]) == 2


def test_new_partitions_are_placed_by_hand_in_order() -> None:
    assert plan(topic((1, 2)), 3, (2, 3), (3, 1)) == {1: (2, 3), 2: (3, 1)}


def test_an_empty_list_of_assignments_is_not_the_same_as_none() -> None:
    with pytest.raises(KafkaError) as raised:
        planned(NewPartitions(topic="t", count=2, assignment=()), topic((1,)))
    assert raised.value.code is ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize(
    ("image", "count", "assignment", "code"),
    [
        (None, 2, (), ErrorCode.unknown_topic_or_partition),
        (topic((1,), (1,)), 2, (), ErrorCode.invalid_partitions),
        (topic((1,), (1,)), 1, (), ErrorCode.invalid_partitions),
        (topic((1,)), -1, (), ErrorCode.invalid_partitions),
        (topic((1,)), MAX_PARTITIONS + 2, (), ErrorCode.policy_violation),
        (topic((1,), name="__consumer_offsets"), 9, (), ErrorCode.invalid_partitions),
        (topic((1,)), 3, ((1,),), ErrorCode.invalid_replica_assignment),
        (topic((1,)), 2, ((1,), (2,)), ErrorCode.invalid_replica_assignment),
        (topic((1,)), 2, ((1, 2),), ErrorCode.invalid_replica_assignment),
        (topic((1, 2)), 2, ((2, 2),), ErrorCode.invalid_replica_assignment),
        (topic((1,)), 2, ((),), ErrorCode.invalid_replica_assignment),
        (topic((1,)), 2, ((9,),), ErrorCode.invalid_replica_assignment),
        (topic((1, 2, 3, 4)), 2, (), ErrorCode.invalid_replication_factor),
    ],
)
def test_invalid_partition_counts_and_assignments_are_refused(image, count, assignment, code) -> None:
    with pytest.raises(KafkaError) as raised:
        plan(image, count, *assignment)
    assert raised.value.code is code


def test_a_topic_without_partitions_gets_its_first_ones() -> None:
    assert plan(topic(), 2) == {0: (1,), 1: (2,)}


def test_new_partitions_may_be_on_brokers_that_are_away_and_are_led_by_live_ones() -> None:
    """M10."""
    planned = plan(topic((1, 2, 3)), 3, away={1})
    assert all(replicas[-1] == 1 for replicas in planned.values())
    assert {replicas[0] for replicas in planned.values()} == {2, 3}
