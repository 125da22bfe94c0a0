"""`/admin/reassign_partitions` (M9, M10): what its entries ask for, and when they go."""

from odradek.broker.controller.machine import ReassignPartitionsRequest, advance, plan_reassignments
from odradek.metadata import paths
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.store import Delete, SetData
from odradek.model import ErrorCode, TopicPartition
from tests.broker.controller.machine.partition_world import (
    CONTROLLER_EPOCH,
    image,
    partition,
    topic,
    with_isr,
    written,
)

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
        cluster = written(cluster, advance(cluster.topics["t"], {1, 2, 3}, CONTROLLER_EPOCH).operations)
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
