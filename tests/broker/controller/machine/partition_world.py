"""Topics as a tree has them, for decisions that are written: small, and versions are checked as a store does."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from odradek.broker.controller.machine.elections import ElectionContext, elections
from odradek.broker.controller.machine.placement import Placement
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.cluster_load import ClusterLoad, Replicas
from odradek.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.metadata.nodes import PartitionStateNode, TopicNode
from odradek.metadata.store import Operation, SetData

CONTROLLER_EPOCH = 9
ENDPOINTS = (ListenerAddress("PLAINTEXT", "host", 1),)
TOPIC_ID = UUID(int=77)


def partition(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None, **more: Any
) -> PartitionImage:
    in_sync = replicas if isr is None else isr
    return PartitionImage(
        leader=in_sync[0] if leader is None else leader,
        leader_epoch=5,
        replicas=replicas,
        isr=in_sync,
        state_version=8,
        **more,
    )


def topic(*partitions: PartitionImage, name: str = "t") -> TopicImage:
    return TopicImage(name=name, topic_id=TOPIC_ID, partitions=dict(enumerate(partitions)), version=3)


def image(live: Iterable[int], *topics: TopicImage, deleting: Iterable[str] = ()) -> ClusterImage:
    brokers = {each: BrokerImage(broker_id=each, endpoints=ENDPOINTS, epoch=100 + each) for each in live}
    cluster = ClusterImage(brokers=brokers, deleting=frozenset(deleting))
    return cluster.with_topics({each.name: each for each in topics})


def written(cluster: ClusterImage, operations: tuple[Operation, ...] | list[Operation]) -> ClusterImage:
    """The cluster after a transaction; every version must be the present one."""
    for operation in operations:
        assert isinstance(operation, SetData)
        key = paths.partition_of_state(operation.path)
        if key is None:
            before = cluster.topics[paths.name_of(operation.path)]
            assert (operation.path, operation.version) == (paths.topic(before.name), before.version)
            after = _with_node(before, TopicNode.decode(operation.path, operation.data))
            cluster = cluster.with_topics({before.name: after})
        else:
            known = cluster.partition(key)
            assert known is not None
            assert operation.version == known.state_version
            state = PartitionStateNode.decode(operation.path, operation.data)
            assert state.controller_epoch == CONTROLLER_EPOCH
            cluster = cluster.with_states({key: (state, operation.version + 1)})
    return cluster


def _with_node(before: TopicImage, node: TopicNode) -> TopicImage:
    assert node.topic_id == before.topic_id
    assert node.replicas.keys() == before.partitions.keys()
    partitions = {
        number: replace(
            before.partitions[number],
            replicas=replicas,
            adding_replicas=node.adding_replicas.get(number, ()),
            removing_replicas=node.removing_replicas.get(number, ()),
        )
        for number, replicas in node.replicas.items()
    }
    return replace(before, partitions=partitions, version=before.version + 1)


def with_isr(cluster: ClusterImage, isr: tuple[int, ...], number: int = 0, leader: int | None = None) -> ClusterImage:
    """The cluster after a leader's ISR was written."""
    before = cluster.topics["t"]
    now = before.partitions[number]
    after = replace(now, isr=isr, leader=now.leader if leader is None else leader, state_version=now.state_version + 1)
    return cluster.with_topics({"t": replace(before, partitions={**before.partitions, number: after})})


def with_live(cluster: ClusterImage, live: Iterable[int]) -> ClusterImage:
    """The cluster after brokers came or went, and elections were held."""
    cluster = replace(cluster, brokers=image(live).brokers)
    context = ElectionContext(controller_epoch=CONTROLLER_EPOCH)
    held = elections(cluster, cluster.topics.values(), BrokerConfig(), context)
    return written(cluster, [each.operation() for each in held])


def place(racks: Any, load: ClusterLoad, *, partitions: int, **options: Any) -> dict[int, Replicas]:
    """Return the replicas of `partitions` new partitions of a topic."""
    placement = Placement(racks, load, **options)
    return {number: placement.place() for number in range(partitions)}
