"""Immutable cluster metadata: brokers, topics, partition leaders; `merge` applies a Metadata response."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from odradek.model import ErrorCode, TopicPartition, explained
from odradek.protocol.messages.message_codec import optional

NO_LEADER: Final = -1
TOPIC_NOT_READY: Final = {ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available}
"""Errors of a topic that is being created or does not exist."""


class Node(Struct, frozen=True, kw_only=True):
    """A broker's id, address and rack."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(Struct, frozen=True, kw_only=True):
    """A partition's replicas; `leader` is -1 without a leader, `leader_epoch` -1 from brokers too old to return it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class TopicMetadata(Struct, frozen=True, kw_only=True):
    """A topic. `numbers` are its partition numbers, `available` those with a live leader, both ascending."""

    name: str
    topic_id: uuid.UUID | None
    error_code: ErrorCode
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    numbers: tuple[int, ...] = ()
    available: tuple[int, ...] = ()


class ClusterMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a cluster, which is also a partitioner's `ClusterView`."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic else None

    def leader(self, partition: TopicPartition) -> int | None:
        found = self.partition(partition)
        return found.leader if found is not None and found.leader in self.nodes else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        """Return all partition numbers, ascending; empty for an unknown topic."""
        found = self.topics.get(topic)
        return found.numbers if found else ()

    def available_partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        found = self.topics.get(topic)
        return found.available if found else ()


def merge(old: ClusterMetadata, response: Any) -> ClusterMetadata:
    """Return the metadata in a Metadata `response` (kio's, any version), with only the response's topics.

    A partition in `old` with a newer leader epoch and the same topic id is kept: a broker's metadata may be outdated
    (KIP-320).
    """
    nodes = {
        broker.node_id: Node(
            node_id=broker.node_id, host=broker.host, port=broker.port, rack=optional(broker, "rack", None)
        )
        for broker in response.brokers
    }
    topics = {topic.name: _topic(topic, old.topics.get(topic.name), nodes) for topic in response.topics if topic.name}
    return ClusterMetadata(
        cluster_id=optional(response, "cluster_id", None),
        controller_id=optional(response, "controller_id", -1),
        nodes=nodes,
        topics=topics,
    )


def with_topics(metadata: ClusterMetadata, kept: Iterable[TopicMetadata]) -> ClusterMetadata:
    """Return `metadata` with the topics of `kept` that it lacks."""
    return replace(metadata, topics={topic.name: topic for topic in kept} | dict(metadata.topics))


def _topic(topic: Any, old: TopicMetadata | None, nodes: Mapping[int, Node]) -> TopicMetadata:
    topic_id = optional(topic, "topic_id", None)
    known = old.partitions if old is not None and old.topic_id == topic_id else {}
    partitions = {
        each.partition_index: _newer(known.get(each.partition_index), partition_metadata(each))
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
    return TopicMetadata(
        name=topic.name,
        topic_id=topic_id,
        error_code=topic.error_code,
        is_internal=optional(topic, "is_internal", False),
        partitions=partitions,
        numbers=tuple(partitions),
        available=tuple(number for number, partition in partitions.items() if partition.leader in nodes),
    )


def partition_metadata(partition: Any) -> PartitionMetadata:
    """Convert a partition of a Metadata or DescribeTopicPartitions response (kio's)."""
    return PartitionMetadata(
        leader=partition.leader_id,
        leader_epoch=optional(partition, "leader_epoch", -1),
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline_replicas=tuple(optional(partition, "offline_replicas", ())),
    )


def topic_error(name: str, code: ErrorCode) -> str:
    if code in TOPIC_NOT_READY:
        return f"there is no topic {name!r}, or none of its partitions has a leader"
    return f"topic {name!r}: {explained(code)}"


def _newer(old: PartitionMetadata | None, new: PartitionMetadata) -> PartitionMetadata:
    return old if old is not None and 0 <= new.leader_epoch < old.leader_epoch else new
