"""The first states of partitions: of a topic just created, and of partitions that were added to its node."""

from collections.abc import Collection, Iterator

from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, PartitionImage, TopicImage
from odradek.metadata.nodes import NO_LEADER, PartitionStateNode
from odradek.metadata.store import Create, Operation
from odradek.model import TopicPartition


def needs_initialization(topic: TopicImage) -> bool:
    """Return whether a partition has no state yet, or the topic no id."""
    return topic.topic_id == UNNAMED or any(each.state_version == -1 for each in topic.partitions.values())


def initial_state(partition: PartitionImage, live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """Return a state in which the first live replica leads and all live ones are in sync; else the preferred one is."""
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
    """Yield the operations that create missing states: a group for each partition, whose operations stay together.

    `existing` are the paths below the topic's node that are there already.
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
        yield [*group, Create(path=paths.partition_state(key), data=state.encode())]
