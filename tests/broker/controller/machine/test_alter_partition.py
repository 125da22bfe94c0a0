"""A leader asks for another ISR (M1): what is written, and what is refused with which code."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from odradek.broker.controller.machine.alter_partition import alter_partition, check_broker_epoch, topic_name
from odradek.broker.controller.machine.reassignment import advance, plan_reassignments
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.nodes import RECOVERED, RECOVERING
from odradek.model import ErrorCode, KafkaError, TopicPartition
from tests.broker.controller.machine.partition_world import (
    CONTROLLER_EPOCH,
    TOPIC_ID,
    image,
    partition,
    topic,
    with_isr,
    written,
)

KEY = TopicPartition("t", 0)
CLUSTER = image({1, 2, 3}, topic(partition(1, 2, 3, isr=(1, 2))))


def ask(cluster=CLUSTER, isr=(1, 2, 3), broker_id=1, key=KEY, shutting_down=(), epochs=-1, **more):
    members = dict.fromkeys(isr, epochs)
    request = AlterPartitionItem(isr=members, **{"leader_epoch": 5, "partition_epoch": 8, **more})
    return alter_partition(
        cluster, key, broker_id, request, ineligible=shutting_down, controller_epoch=CONTROLLER_EPOCH
    )


@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (1, 3)])
def test_a_requested_isr_is_written_in_the_same_leader_epoch(isr):
    change = ask(isr=isr)
    assert (change.state.leader, change.state.leader_epoch, change.state.isr) == (1, 5, isr)
    assert (change.state.controller_epoch, change.version) == (CONTROLLER_EPOCH, 8)
    assert written(CLUSTER, [change.operation()]).topics["t"].partitions[0].isr == isr


@pytest.mark.parametrize("partition_epoch", [8, 7])
def test_an_isr_that_is_there_already_is_not_written_again(partition_epoch):
    assert ask(isr=(2, 1), partition_epoch=partition_epoch) is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"key": TopicPartition("t", 1)}, ErrorCode.unknown_topic_or_partition),
        ({"key": TopicPartition("gone", 0)}, ErrorCode.unknown_topic_or_partition),
        ({"leader_epoch": 6}, ErrorCode.not_controller),
        ({"partition_epoch": 9}, ErrorCode.not_controller),
        ({"leader_epoch": 4}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": 4, "partition_epoch": 9}, ErrorCode.not_controller),
        ({"partition_epoch": 7}, ErrorCode.invalid_update_version),
        ({"broker_id": 2}, ErrorCode.invalid_request),
        ({"isr": ()}, ErrorCode.invalid_request),
        ({"isr": (2, 3)}, ErrorCode.invalid_request),
        ({"isr": (1, 2, 4)}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 1}, ErrorCode.invalid_request),
        ({"shutting_down": {3}}, ErrorCode.ineligible_replica),
        ({"cluster": replace(CLUSTER, brokers=image({1, 2}).brokers)}, ErrorCode.ineligible_replica),
        ({"epochs": 99}, ErrorCode.ineligible_replica),
    ],
)
def test_invalid_requests_are_refused_with_kafka_s_code(asked, code):
    with pytest.raises(KafkaError) as raised:
        ask(**asked)
    assert raised.value.code is code


def test_a_request_with_the_recovered_state_ends_the_recovery_of_a_leader():
    """KIP-704."""
    cluster = image({1, 2, 3}, topic(partition(1, 2, 3, isr=(1,), leader_recovery_state=RECOVERING)))
    assert ask(cluster, isr=(1,), leader_recovery_state=RECOVERING) is None
    change = ask(cluster, isr=(1,))
    assert (change.state.isr, change.state.leader_recovery_state) == ((1,), RECOVERED)
    assert written(cluster, [change.operation()]).topics["t"].partitions[0].leader_recovery_state == RECOVERED
    assert ask(cluster, isr=(1, 2)).state.leader_recovery_state == RECOVERED
    with pytest.raises(KafkaError) as raised:
        ask(cluster, isr=(1, 2), leader_recovery_state=RECOVERING)
    assert raised.value.code is ErrorCode.invalid_request, "nobody is in sync with a leader that recovers"


def test_a_joining_replica_has_the_broker_epoch_that_the_leader_knows():
    assert ask(isr=(1, 2, 3), epochs=103) is not None


def test_a_leader_that_shuts_down_adds_others_to_the_isr():
    alone = image({1, 2}, topic(partition(1, 2, isr=(1,))))
    assert ask(alone, isr=(1, 2), shutting_down={1}).state.isr == (1, 2)


def test_a_replica_that_is_to_go_does_not_come_back_once_the_others_are_there():
    cluster = image({1, 2, 3}, topic(partition(1, 2)))
    [step] = plan_reassignments(cluster, {KEY: (1, 3)}, controller_epoch=CONTROLLER_EPOCH).steps
    cluster = written(cluster, step.operations)
    epochs = {"leader_epoch": 6}
    waiting = with_isr(cluster, (1,))
    assert ask(waiting, isr=(1, 2), partition_epoch=10, **epochs) is not None
    moved = with_isr(cluster, (1, 3))
    with pytest.raises(KafkaError) as raised:
        ask(moved, isr=(1, 3, 2), partition_epoch=10, **epochs)
    assert raised.value.code is ErrorCode.ineligible_replica
    assert advance(moved.topics["t"], {1, 2, 3}, CONTROLLER_EPOCH, is_stopped=bool).stop[0].brokers == (2,)


def test_requests_of_earlier_registrations_are_refused():
    check_broker_epoch(CLUSTER, 1, 101)
    for broker_id, epoch in ((1, 100), (1, 102), (1, -1), (4, 104)):
        with pytest.raises(KafkaError) as raised:
            check_broker_epoch(CLUSTER, broker_id, epoch)
        assert raised.value.code is ErrorCode.stale_broker_epoch


def test_topics_are_known_by_their_ids():
    assert topic_name(CLUSTER, TOPIC_ID) == "t"
    for unknown in (UUID(int=1), UUID(int=0)):
        with pytest.raises(KafkaError) as raised:
            topic_name(CLUSTER, unknown)
        assert raised.value.code is ErrorCode.unknown_topic_id
