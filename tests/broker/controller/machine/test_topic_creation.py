"""Whether a topic that somebody wants can be had, and what is written then."""

import json
import re
from uuid import UUID

import pytest

from odradek.broker.controller.machine.topic_creation import (
    MAX_PARTITIONS,
    ExistingTopicNames,
    PartitionLimit,
    plan_topic,
)
from odradek.broker.controller.machine.topic_deletion import deletion_operations
from odradek.broker.turns import at_once
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.cluster_load import ClusterLoad
from odradek.metadata.image import BrokerImage
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlockNode, next_producer_id_block
from odradek.metadata.store import Create, Delete, SetData
from odradek.model import ErrorCode, KafkaError

ENDPOINTS = (ListenerAddress("PLAINTEXT", "host", 1),)
BROKERS = {broker_id: BrokerImage(broker_id=broker_id, endpoints=ENDPOINTS) for broker_id in (1, 2, 3)}


def plan(wanted: NewTopic, *, existing=(), brokers=BROKERS, away=(), config=None, load=None, room=None):
    steps = plan_topic(
        wanted,
        topic_id=UUID(int=7),
        existing=ExistingTopicNames(existing),
        brokers=brokers,
        away=away,
        load=load or ClusterLoad(),
        config=config or BrokerConfig(num_partitions=4, default_replication_factor=2),
        room=room or PartitionLimit(),
    )
    return at_once(steps)


def test_partitions_beyond_the_limit_of_a_request_are_not_placed() -> None:
    room, load = PartitionLimit(), ClusterLoad()
    room.take(MAX_PARTITIONS - 1)
    with pytest.raises(KafkaError, match="Excessively large") as failed:
        plan(NewTopic(name="t", num_partitions=2, replication_factor=1), load=load, room=room)
    assert failed.value.code is ErrorCode.policy_violation
    assert not load.replicas


@pytest.mark.parametrize(
    ("wanted", "existing", "code", "said"),
    [
        (NewTopic(name=""), (), ErrorCode.invalid_topic_exception, "the empty string is not allowed"),
        (NewTopic(name="a/b"), (), ErrorCode.invalid_topic_exception, "other than ASCII"),
        (NewTopic(name=".."), (), ErrorCode.invalid_topic_exception, "is not allowed"),
        (NewTopic(name="x" * 250), (), ErrorCode.invalid_topic_exception, "249"),
        (NewTopic(name="a"), ("a",), ErrorCode.topic_already_exists, "already exists."),
        (NewTopic(name="a.b"), ("c", "a_b"), ErrorCode.invalid_topic_exception, "collides with existing topic: a_b"),
        (NewTopic(name="a_b"), ("a.b", "a_b"), ErrorCode.topic_already_exists, "already exists."),
        (NewTopic(name="a", num_partitions=0), (), ErrorCode.invalid_partitions, "non-positive value"),
        (NewTopic(name="a", num_partitions=-2), (), ErrorCode.invalid_partitions, "non-positive value"),
        (NewTopic(name="a", num_partitions=MAX_PARTITIONS + 1), (), ErrorCode.policy_violation, "Excessively large"),
        (NewTopic(name="a", replication_factor=0), (), ErrorCode.invalid_replication_factor, "larger than 0"),
        (
            NewTopic(name="a", replication_factor=4),
            (),
            ErrorCode.invalid_replication_factor,
            "only 3 broker(s) are registered",
        ),
        (NewTopic(name="a", assignment={0: (1,)}, num_partitions=1), (), ErrorCode.invalid_request, "numPartitions"),
        (NewTopic(name="a", assignment={1: (1,)}), (), ErrorCode.invalid_replica_assignment, "consecutive 0-based"),
        (NewTopic(name="a", assignment={0: ()}), (), ErrorCode.invalid_replica_assignment, "an empty replica list"),
        (NewTopic(name="a", assignment={0: (1, 1)}), (), ErrorCode.invalid_replica_assignment, "more than once"),
        (
            NewTopic(name="a", assignment={0: (1, 2), 1: (1,)}),
            (),
            ErrorCode.invalid_replica_assignment,
            "1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s)",
        ),
        (
            NewTopic(name="a", assignment={0: (1, 9)}),
            (),
            ErrorCode.invalid_replica_assignment,
            "broker 9, but no such broker is registered",
        ),
        (
            NewTopic(name="a", assignment=dict.fromkeys(range(MAX_PARTITIONS + 1), (1,))),
            (),
            ErrorCode.policy_violation,
            "Excessively large",
        ),
        (
            NewTopic(name="a", config={"retention": "1"}),
            (),
            ErrorCode.invalid_config,
            "Unknown topic config name: retention",
        ),
        (NewTopic(name="a", config={"retention.ms": "soon"}), (), ErrorCode.invalid_config, "Not a number"),
        (NewTopic(name="a", config={"retention.ms": None}), (), ErrorCode.invalid_config, "Null value"),
    ],
)
def test_invalid_topics_are_refused_with_kafka_s_code(wanted, existing, code, said) -> None:
    with pytest.raises(KafkaError, match=re.escape(said)) as error:
        plan(wanted, existing=existing)
    assert error.value.code is code


def test_without_brokers_there_are_no_topics() -> None:
    with pytest.raises(KafkaError) as error:
        plan(NewTopic(name="a", replication_factor=1), brokers={})
    assert error.value.code is ErrorCode.invalid_replication_factor


def test_numbers_that_are_not_given_are_the_broker_s() -> None:
    planned = plan(NewTopic(name="a"))
    assert [len(replicas) for replicas in planned.replicas.values()] == [2, 2, 2, 2]
    assert len(plan(NewTopic(name="a", num_partitions=6, replication_factor=3)).replicas[5]) == 3


def test_replicas_given_by_hand_are_taken_in_their_order() -> None:
    planned = plan(NewTopic(name="a", assignment={1: (3, 1), 0: (2, 3)}))
    assert planned.replicas == {0: (2, 3), 1: (3, 1)}


def test_a_topic_and_its_configuration_are_written_together() -> None:
    """M9: the nodes of a topic."""
    planned = plan(NewTopic(name="a", assignment={0: (1,)}, config={"retention.ms": "5"}))
    config, topic = planned.operations(config_exists=False)
    assert isinstance(config, Create)
    assert config.path == "/config/topics/a"
    assert json.loads(config.data) == {"version": 1, "config": {"retention.ms": "5"}}
    assert isinstance(topic, Create)
    assert topic.path == "/brokers/topics/a"
    assert json.loads(topic.data)["partitions"] == {"0": [1]}
    left_behind, _ = planned.operations(config_exists=True)
    assert isinstance(left_behind, SetData)


def test_a_topic_is_placed_on_brokers_that_are_away_where_the_live_ones_are_too_few() -> None:
    """M10. As in KRaft: a refusal is fatal to Kafka Streams, which creates topics when a broker has just failed."""
    planned = plan(NewTopic(name="a", num_partitions=4, replication_factor=3), away={2})
    assert all(sorted(replicas) == [1, 2, 3] and replicas[-1] == 2 for replicas in planned.replicas.values())
    assert {replicas[0] for replicas in planned.replicas.values()} == {1, 3}


def test_a_topic_that_the_live_brokers_have_room_for_is_placed_on_no_broker_that_is_away() -> None:
    planned = plan(NewTopic(name="a", num_partitions=6, replication_factor=2), away={2})
    assert {broker for replicas in planned.replicas.values() for broker in replicas} == {1, 3}


def test_a_hand_made_assignment_may_name_brokers_that_are_away_but_not_only_those() -> None:
    assert plan(NewTopic(name="a", assignment={0: (2, 1)}), away={2}).replicas == {0: (2, 1)}
    with pytest.raises(KafkaError, match="assignment for partition 1 are fenced or in") as raised:
        plan(NewTopic(name="a", assignment={0: (1, 2), 1: (2, 3)}), away={2, 3})
    assert raised.value.code is ErrorCode.invalid_replica_assignment


# ---- Deletion, and producer ids --------------------------------------------------------------------------------------

ROOT = "/brokers/topics/a"


def test_the_deepest_nodes_are_deleted_first_and_the_deletion_request_last() -> None:
    existing = {
        ROOT,
        f"{ROOT}/partitions",
        f"{ROOT}/partitions/0",
        f"{ROOT}/partitions/0/state",
        "/config/topics/a",
        "/admin/delete_topics/a",
    }
    groups = [[operation.path for operation in group] for group in deletion_operations("a", existing)]
    assert groups == [
        [f"{ROOT}/partitions/0/state"],
        [f"{ROOT}/partitions/0"],
        [f"{ROOT}/partitions"],
        ["/config/topics/a", ROOT, "/admin/delete_topics/a"],
    ]


def test_nodes_that_are_gone_are_not_deleted_again() -> None:
    [[operation]] = deletion_operations("a", {"/admin/delete_topics/a"})
    assert operation.path == "/admin/delete_topics/a"


def test_the_note_of_an_earlier_try_stays_and_others_are_added() -> None:
    topic_id = UUID(int=1)
    existing = {"/admin/delete_topics/a", paths.deleted_replica(1, topic_id)}
    groups = list(deletion_operations("a", existing, topic_id=topic_id, away=(1, 2)))
    assert groups == [[Delete(path="/admin/delete_topics/a"), Create(path=paths.deleted_replica(2, topic_id))]]


def test_blocks_of_producer_ids_follow_each_other() -> None:
    first = next_producer_id_block(None, 1)
    second = next_producer_id_block(first, 2)
    assert (first.first, first.last) == (0, PRODUCER_ID_BLOCK_SIZE - 1)
    assert (second.first, second.broker_id) == (first.last + 1, 2)


def test_producer_ids_end_before_64_bits_do() -> None:
    with pytest.raises(KafkaError, match="no producer ids left"):
        next_producer_id_block(ProducerIdBlockNode(broker_id=1, first=0, last=2**63 - 2), 1)
