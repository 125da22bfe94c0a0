"""Reassigning partitions (M10): what is refused, each phase, cancelling, and another target meanwhile."""

import pytest

from odradek.broker.controller.machine.reassignment import STEP_PARTITIONS, advance, plan_reassignments, reassignments
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage, PartitionImage
from odradek.metadata.nodes import PartitionStateNode, TopicNode
from odradek.model import ErrorCode, TopicPartition
from tests.broker.controller.machine.partition_world import (
    CONTROLLER_EPOCH,
    image,
    partition,
    topic,
    with_isr,
    with_live,
    written,
)

KEY = TopicPartition("t", 0)


def plan(cluster: ClusterImage, target, key=KEY, **more):
    return plan_reassignments(cluster, {key: target}, controller_epoch=CONTROLLER_EPOCH, **more)


def begun(cluster: ClusterImage, target) -> ClusterImage:
    planned = plan(cluster, target)
    assert not planned.errors
    for step in planned.steps:
        assert not step.stop
        cluster = written(cluster, step.operations)
    return cluster


def next_step(cluster: ClusterImage, is_stopped=bool):
    return advance(cluster.topics["t"], cluster.brokers.keys(), CONTROLLER_EPOCH, is_stopped=is_stopped)


def stopped(step):
    return [(each.partition, each.brokers, each.leader_epoch) for each in step.stop]


def replicas_of(cluster: ClusterImage):
    now = cluster.topics["t"].partitions[0]
    return now.replicas, now.adding_replicas, now.removing_replicas


def state_of(cluster: ClusterImage):
    now = cluster.topics["t"].partitions[0]
    return now.leader, now.isr


@pytest.mark.parametrize(
    ("key", "target", "code"),
    [
        (KEY, (), ErrorCode.invalid_replica_assignment),
        (KEY, (1, 1), ErrorCode.invalid_replica_assignment),
        (KEY, (1, 9), ErrorCode.invalid_replica_assignment),
        (KEY, (1, -1), ErrorCode.invalid_replica_assignment),
        (KEY, None, ErrorCode.no_reassignment_in_progress),
        (TopicPartition("t", 1), (1,), ErrorCode.unknown_topic_or_partition),
        (TopicPartition("gone", 0), (1,), ErrorCode.unknown_topic_or_partition),
        (TopicPartition("gone", 0), None, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_an_invalid_target_is_refused_for_its_partition_alone(key, target, code):
    cluster = image({1, 2, 3, 4}, topic(partition(1, 2), partition(2, 3), name="other"), topic(partition(1, 2)))
    fine = TopicPartition("other", 1)
    planned = plan_reassignments(cluster, {key: target, fine: (3, 4)}, controller_epoch=CONTROLLER_EPOCH)
    assert {each: error.code for each, error in planned.errors.items()} == {key: code}
    assert [step.topic for step in planned.steps] == ["other"]


def test_a_replica_that_is_dead_may_stay_one():
    cluster = image({1, 3}, topic(partition(1, 2, isr=(1,))))
    assert not plan(cluster, (1, 2, 3)).errors
    assert plan(cluster, (1, 4)).errors


def test_another_number_of_replicas_is_refused_where_that_is_forbidden():
    cluster = image({1, 2, 3}, topic(partition(1, 2)))
    assert plan(cluster, (1, 2, 3), allow_replication_factor_change=False).errors[KEY].code == (
        ErrorCode.invalid_replication_factor
    )
    assert not plan(cluster, (3, 1), allow_replication_factor_change=False).errors
    # A reassignment counts as what it leads to.
    growing = begun(cluster, (1, 2, 3))
    assert not plan(growing, (3, 2, 1), allow_replication_factor_change=False).errors


def test_the_way_from_three_replicas_to_three_others():
    cluster = image(range(1, 7), topic(partition(1, 2, 3), partition(3, 2, 1)))
    [step] = plan(cluster, (4, 5, 6)).steps
    assert [operation.path for operation in step.operations] == [paths.topic("t"), paths.partition_state(KEY)]
    assert step.stop == ()
    node = TopicNode.decode("", step.operations[0].data)
    assert node.replicas == {0: (4, 5, 6, 1, 2, 3), 1: (3, 2, 1)}
    assert (node.adding_replicas, node.removing_replicas) == ({0: (4, 5, 6)}, {0: (1, 2, 3)})
    state = PartitionStateNode.decode("", step.operations[1].data)
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2, 3), 6)

    cluster = written(cluster, step.operations)
    assert next_step(cluster) is None
    cluster = with_isr(cluster, (1, 2, 3, 4, 6))
    assert next_step(cluster) is None

    cluster = with_isr(cluster, (1, 2, 3, 4, 6, 5))
    move = next_step(cluster)
    assert move.stop == ()
    cluster = written(cluster, move.operations)
    assert state_of(cluster) == (4, (4, 6, 5))
    assert replicas_of(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))

    finish = next_step(cluster)
    assert stopped(finish) == [(KEY, (1, 2, 3), 7)]
    cluster = written(cluster, finish.operations)
    assert replicas_of(cluster) == ((4, 5, 6), (), ())
    assert state_of(cluster) == (4, (4, 6, 5))
    assert cluster.topics["t"].partitions[0].leader_epoch == 8
    assert next_step(cluster) is None
    assert reassignments(cluster) == {}


def test_a_leader_that_stays_a_replica_stays_the_leader():
    cluster = begun(image({1, 2, 3}, topic(partition(1, 2))), (3, 1))
    cluster = with_isr(cluster, (1, 2, 3))
    cluster = written(cluster, next_step(cluster).operations)
    assert state_of(cluster) == (1, (1, 3))
    finish = next_step(cluster)
    assert stopped(finish) == [(KEY, (2,), 7)]
    assert replicas_of(written(cluster, finish.operations)) == ((3, 1), (), ())


def test_the_new_leader_is_alive():
    cluster = begun(image({1, 2, 3, 4}, topic(partition(1, 2))), (3, 4))
    cluster = image({1, 2, 4}, with_isr(cluster, (1, 2, 3, 4)).topics["t"])
    assert state_of(written(cluster, next_step(cluster).operations)) == (4, (3, 4))


def test_while_all_of_the_target_are_dead_the_others_go_on():
    cluster = with_isr(begun(image({1, 2, 3}, topic(partition(1, 2))), (3,)), (1, 2, 3))
    dead = image({1, 2}, cluster.topics["t"])
    assert next_step(dead) is None


def test_old_replicas_stay_until_a_replica_of_the_target_that_is_dead_is_back_and_in_sync():
    cluster = with_live(begun(image({1, 2, 3, 4}, topic(partition(1, 2))), (3, 4)), {1, 2, 3})
    assert next_step(with_isr(cluster, (1, 2, 3))) is None
    assert next_step(with_isr(with_live(cluster, {1, 2, 3, 4}), (1, 2, 3, 4))) is not None


def test_replicas_in_another_order_are_reassigned_at_once():
    cluster = image({1, 2}, topic(partition(1, 2)))
    assert plan(cluster, (1, 2)).steps == ()
    cluster = begun(cluster, (2, 1))
    assert replicas_of(cluster) == ((2, 1), (), ())
    assert reassignments(cluster) == {}
    assert plan(cluster, (2, 1)).steps == ()


def test_fewer_replicas_wait_for_those_that_remain():
    cluster = begun(image({1, 2, 3}, topic(partition(1, 2, 3, isr=(1, 3)))), (1, 2))
    assert replicas_of(cluster) == ((1, 2, 3), (), (3,))
    assert next_step(cluster) is None
    assert next_step(with_isr(cluster, (1, 3, 2))) is not None


def test_a_cancelled_reassignment_leads_back():
    cluster = begun(image({1, 2, 3, 4}, topic(partition(1, 2))), (3, 4))
    cluster = with_isr(cluster, (1, 2, 3))
    cluster = begun(cluster, None)
    assert replicas_of(cluster) == ((1, 2, 3, 4), (3, 4), (3, 4))
    cluster = written(cluster, next_step(cluster).operations)
    assert state_of(cluster) == (1, (1, 2))
    finish = next_step(cluster)
    assert stopped(finish) == [(KEY, (3, 4), 8)]
    cluster = written(cluster, finish.operations)
    assert replicas_of(cluster) == ((1, 2), (), ())
    assert plan(cluster, None).errors[KEY].code == ErrorCode.no_reassignment_in_progress


def test_cancelling_does_not_wait_for_replicas_that_were_dead_anyway():
    cluster = begun(image({1, 3}, topic(partition(1, 2, isr=(1,)))), (3, 1))
    cluster = begun(cluster, None)
    cluster = written(cluster, next_step(cluster).operations)
    assert replicas_of(cluster) == ((1, 2), (), ())


def test_cancelling_keeps_the_only_replicas_with_the_records():
    """M1: the others died after the new replica had come into the ISR."""
    cluster = with_isr(begun(image({1, 2, 3}, topic(partition(1, 2))), (3,)), (1, 3))
    cluster = begun(with_live(with_isr(cluster, (1, 3)), {2, 3}), None)
    assert state_of(cluster) == (3, (3,))
    assert next_step(cluster) is None
    cluster = with_isr(cluster, (3, 2))
    cluster = written(cluster, next_step(cluster).operations)
    assert state_of(cluster) == (2, (2,))
    assert replicas_of(written(cluster, next_step(cluster).operations)) == ((1, 2), (), ())


def test_another_target_takes_back_what_was_begun():
    cluster = begun(image(range(1, 6), topic(partition(1, 2))), (3, 4))
    cluster = begun(cluster, (4, 5))
    assert replicas_of(cluster) == ((4, 5, 1, 2, 3), (4, 5, 3), (1, 2, 3))
    withdraw = next_step(cluster)
    assert stopped(withdraw) == [(KEY, (3,), 7)]
    cluster = written(cluster, withdraw.operations)
    assert replicas_of(cluster) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert next_step(cluster) is None
    cluster = with_isr(cluster, (1, 2, 4, 5))
    cluster = written(cluster, next_step(cluster).operations)
    cluster = written(cluster, next_step(cluster).operations)
    assert (replicas_of(cluster), state_of(cluster)) == (((4, 5), (), ()), (4, (4, 5)))


def test_a_reassignment_goes_on_after_replicas_of_a_former_target_are_removed():
    """The new replica is in sync, but shuts down."""
    cluster = begun(begun(image({1, 2, 4, 5}, topic(partition(1, 2))), (5,)), (4,))
    cluster = with_live(with_isr(cluster, (1, 2, 4)), {1, 2})
    withdraw = next_step(cluster)
    assert stopped(withdraw) == [(KEY, (5,), 8)]
    assert replicas_of(written(cluster, withdraw.operations)) == ((4, 1, 2), (4,), (1, 2))


def test_partitions_do_not_wait_for_a_broker_that_keeps_a_replica_of_another():
    others = [TopicPartition("t", number) for number in (1, 2)]
    cluster = image({1, 2, 3}, topic(partition(1), partition(2), partition(2)))
    for step in plan_reassignments(
        cluster, dict.fromkeys((KEY, *others), (3,)), controller_epoch=CONTROLLER_EPOCH
    ).steps:
        cluster = written(cluster, step.operations)
    for number, isr in enumerate([(1, 3), (2, 3), (2, 3)]):
        cluster = with_isr(cluster, isr, number)
    cluster = written(cluster, next_step(cluster).operations)
    cluster = with_isr(cluster, (3,), 0)
    finish = next_step(cluster, lambda stop: 1 not in stop.brokers)
    assert [each.partition for each in finish.stop] == others
    cluster = written(cluster, finish.operations)
    assert reassignments(cluster).keys() == {KEY}
    assert next_step(cluster, lambda stop: 1 not in stop.brokers) is None


def test_progress_is_listed_for_reassignments_in_progress():
    cluster = image(range(1, 6), topic(partition(1, 2), partition(2, 1), name="a"), topic(partition(1, 2)))
    targets = {KEY: (3, 1), TopicPartition("a", 1): (5,)}
    for step in plan_reassignments(cluster, targets, controller_epoch=CONTROLLER_EPOCH).steps:
        cluster = written(cluster, step.operations)
    found = reassignments(cluster)
    assert found.keys() == targets.keys()
    assert (found[KEY].replicas, found[KEY].adding, found[KEY].removing) == ((3, 1, 2), (3,), (2,))
    assert reassignments(cluster, {"a": [0], "t": [0, 7], "gone": [1]}).keys() == {KEY}


def test_many_partitions_are_many_transactions():
    count = 2 * STEP_PARTITIONS + 1
    cluster = image({1, 2}, topic(*(partition(1) for _ in range(count))))
    targets = {TopicPartition("t", number): (2,) for number in range(count)}
    steps = plan_reassignments(cluster, targets, controller_epoch=CONTROLLER_EPOCH).steps
    assert [len(step.operations) for step in steps] == [STEP_PARTITIONS + 1] * 2 + [2]
    for step in steps:
        cluster = written(cluster, step.operations)
    assert len(reassignments(cluster)) == count
    for number in range(count):
        cluster = with_isr(cluster, (1, 2), number)
    taken = 0
    while (step := next_step(cluster)) is not None:
        cluster = written(cluster, step.operations)
        taken += 1
    assert taken == 6
    assert {each.replicas for each in cluster.topics["t"].partitions.values()} == {(2,)}


def test_a_partition_without_a_readable_state_waits():
    unread = PartitionImage(leader=-1, leader_epoch=-1, replicas=(1,), isr=(1,), state_version=4)
    cluster = image({1, 2}, topic(unread))
    [step] = plan(cluster, (1, 2)).steps
    assert [operation.path for operation in step.operations] == [paths.topic("t")]
    cluster = written(cluster, step.operations)
    assert replicas_of(cluster) == ((1, 2), (2,), ())
    assert next_step(cluster) is None
