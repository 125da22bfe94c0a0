"""Plans that move partitions to other brokers, or off one (M10): balanced, rack by rack, and no further than needed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.controller.machine.reassignment import ReassignPartitionsRequest, advance, plan_reassignments
from odradek.broker.controller.machine.reassignment_proposals import generate_assignment, plan_drain
from odradek.metadata import paths
from odradek.metadata.cluster_load import ClusterLoad
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.store import Delete, SetData
from odradek.model import ErrorCode, TopicPartition
from tests.broker.controller.machine.partition_world import (
    CONTROLLER_EPOCH,
    image,
    partition,
    place,
    topic,
    with_isr,
    written,
)


def cluster(topics, racks, factor=3):
    """Topics with so many partitions, placed one after the other."""
    load = ClusterLoad()
    return {
        TopicPartition(name, number): replicas
        for name, count in topics.items()
        for number, replicas in place(racks, load, partitions=count, replication_factor=factor).items()
    }


def test_an_evacuation_moves_only_what_the_broker_has_and_keeps_the_others():
    racks = dict.fromkeys(range(4))
    before = cluster({"a": 8, "b": 5}, racks)
    moved = plan_drain(2, before, racks).targets
    assert moved.keys() == {key for key, replicas in before.items() if 2 in replicas}
    for key, replicas in moved.items():
        assert set(before[key]) - {2} < set(replicas)
        assert len(set(replicas)) == 3
        assert 2 not in replicas


def test_replicas_and_leaders_of_a_drained_broker_are_spread_over_all_others():
    racks = dict.fromkeys(range(5))
    before = cluster({"a": 40}, racks, factor=2)
    after = before | dict(plan_drain(0, before, racks).targets)
    replicas = Counter(each for some in after.values() for each in some)
    leaders = Counter(some[0] for some in after.values())
    assert replicas.keys() == leaders.keys() == {1, 2, 3, 4}
    assert max(replicas.values()) - min(replicas.values()) <= 2
    assert max(leaders.values()) - min(leaders.values()) <= 2


def test_the_successor_is_of_a_rack_that_the_partition_has_not_got():
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    key = TopicPartition("t", 0)
    crowd = {TopicPartition("other", number): (4,) for number in range(50)}
    assert plan_drain(2, {key: (0, 2), **crowd}, racks).targets[key] == (0, 3)
    assert plan_drain(0, {key: (2, 0), **crowd}, racks).targets[key] == (2, 1)
    assert set(plan_drain(2, {key: (0, 3, 2), **crowd}, racks).targets[key]) == {0, 3, 4}, "not 1, though 4 has much"


def test_where_no_broker_is_left_the_partition_stays_and_is_named():
    wide, narrow = TopicPartition("wide", 0), TopicPartition("narrow", 0)
    plan = plan_drain(1, {wide: (0, 1, 2), narrow: (1,)}, dict.fromkeys(range(3)))
    assert plan.stuck == (wide,)
    assert plan.targets == {narrow: (0,)}


def test_a_broker_that_is_dead_can_be_evacuated_and_nothing_goes_to_other_dead_ones():
    key = TopicPartition("t", 0)
    assert plan_drain(9, {key: (9, 1)}, {1: None, 2: None}).targets == {key: (1, 2)}
    assert plan_drain(9, {key: (9, 8)}, {1: None}).targets == {key: (1, 8)}


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    brokers=st.integers(3, 7),
    factor=st.integers(1, 3),
    gone=st.integers(0, 6),
)
def test_an_evacuated_broker_has_nothing_and_a_second_evacuation_does_nothing(counts, brokers, factor, gone):
    racks = {each: f"rack-{each % 3}" for each in range(brokers)}
    before = cluster({f"t{place}": count for place, count in enumerate(counts)}, racks, factor)
    plan = plan_drain(gone, before, racks)
    after = before | dict(plan.targets)
    assert {key for key, replicas in after.items() if gone in replicas} == set(plan.stuck)
    if brokers > factor:
        assert plan.stuck == ()
    assert plan_drain(gone, after, racks).targets == {}


def test_topics_are_spread_over_the_brokers_that_are_named_with_as_many_replicas_as_before():
    racks = {0: "a", 1: "b", 2: "a", 3: "b"}
    before = cluster({"old": 6, "wide": 4}, {0: "a", 1: "b"}, factor=2)
    before[TopicPartition("wide", 4)] = (0,)
    wide = {key: replicas for key, replicas in before.items() if key.topic == "wide"}
    planned = generate_assignment(before, {"wide": wide}, racks)
    assert planned.keys() == wide.keys()
    for key, replicas in planned.items():
        assert len(replicas) == len(wide[key])
        assert len({racks[each] for each in replicas}) == len(replicas)
    assert {each for replicas in planned.values() for each in replicas} == {0, 1, 2, 3}
    counted = Counter(each for replicas in planned.values() for each in replicas)
    assert counted[2] + counted[3] >= counted[0] + counted[1], "the others have the old topic already"


# ---- The node of requests --------------------------------------------------------------------------------------------

KEY, GONE = TopicPartition("t", 0), TopicPartition("gone", 0)


NODE = b"""{"version":1,"partitions":[
    {"topic":"t","partition":0,"replicas":[2,3]}, {"topic":"gone","partition":0,"replicas":[1]}]}"""


def requests() -> ReassignPartitionsRequest:
    return ReassignPartitionsRequest(node=ReassignPartitionsNode.decode("", NODE), version=4)


def test_an_entry_stays_until_its_partition_is_reassigned():
    cluster = image({1, 2, 3}, topic(partition(1, 2)))
    assert requests().to_begin(cluster) == {KEY: (2, 3), GONE: (1,)}
    planned = plan_reassignments(cluster, requests().to_begin(cluster), controller_epoch=CONTROLLER_EPOCH)
    assert planned.errors[GONE].code is ErrorCode.unknown_topic_or_partition
    [step] = planned.steps
    cluster = written(cluster, step.operations)
    assert requests().to_begin(cluster).keys() == {GONE}
    assert requests().completed(cluster) == []
    cluster = with_isr(cluster, (1, 2, 3))
    for _ in range(2):
        cluster = written(
            cluster, advance(cluster.topics["t"], {1, 2, 3}, CONTROLLER_EPOCH, is_stopped=bool).operations
        )
    assert requests().completed(cluster) == [KEY]


def test_the_node_goes_with_its_last_entry():
    fewer = requests().without([GONE])
    assert isinstance(fewer, SetData)
    assert (fewer.path, fewer.version) == (paths.REASSIGN_PARTITIONS, 4)
    assert ReassignPartitionsNode.decode("", fewer.data).replicas == {KEY: (2, 3)}
    assert requests().without([KEY, GONE]) == Delete(path=paths.REASSIGN_PARTITIONS, version=4)
    assert requests().without([TopicPartition("t", 1)]) is None
    empty = ReassignPartitionsRequest(node=ReassignPartitionsNode(replicas={}), version=0)
    assert empty.without([]) == Delete(path=paths.REASSIGN_PARTITIONS, version=0)
