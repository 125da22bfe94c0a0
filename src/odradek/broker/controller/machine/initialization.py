"""Creates the initial states of partitions: those of a new topic, and those added to a topic's node."""

from collections.abc import Collection, Iterator

from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, PartitionImage, TopicImage
from odradek.metadata.nodes import NO_LEADER, PartitionStateNode
from odradek.metadata.store import Create, Operation
from odradek.model import TopicPartition
from odradek.model.probes import transition


def needs_initialization(topic: TopicImage) -> bool:
    """Return whether a partition of the topic has no state, or the topic has no id."""
    return topic.topic_id == UNNAMED or any(each.state_version == -1 for each in topic.partitions.values())


def initial_state(partition: PartitionImage, live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """Return the initial state: the first live replica leads, and the live replicas are the ISR.

    Without a live replica there is no leader, and the preferred replica is the ISR.
    """
    alive = tuple(replica for replica in partition.replicas if replica in live)
    return PartitionStateNode(
        leader=alive[0] if alive else NO_LEADER,
        leader_epoch=0,
        isr=alive or partition.replicas[:1],
        controller_epoch=controller_epoch,
    )


def initial_operations(
    topic: TopicImage, live: Collection[int], controller_epoch: int, existing: Collection[str]
) -> Iterator[list[Operation]]:
    """Yield the operations that create missing states, one list per partition; a list belongs in one transaction.

    `existing` are the paths that exist below the topic's node.
    """
    parents = [paths.partitions(topic.name)]
    for number, partition in sorted(topic.partitions.items()):
        key = TopicPartition(topic.name, number)
        if partition.state_version != -1:
            continue
        group: list[Operation] = [
            Create(path=path) for path in (*parents, paths.partition(key)) if path not in existing
        ]
        parents = []
        state = initial_state(partition, live, controller_epoch)
        transition("partition", "NEW", "OFFLINE" if state.leader == NO_LEADER else "ONLINE")
        yield [*group, Create(path=paths.partition_state(key), data=state.encode())]
