"""Converts partitions between topic ids and the embedded protocol `consumer`, which has topic names."""

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember
from odradek.metadata.image import ClusterImage
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import Assignment as EmbeddedAssignment
from odradek.protocol.consumer_protocol import encode_assignment, subscription_version


def by_id(partitions: Iterable[TopicPartition], image: ClusterImage) -> Assignment:
    """Return the partitions by topic id, without those that do not exist."""
    found: defaultdict[UUID, set[int]] = defaultdict(set)
    for name, number in partitions:
        topic = image.topics.get(name)
        if topic is not None and number in topic.partitions:
            found[topic.topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def embedded_assignment(member: ConsumerGroupMember, image: ClusterImage) -> bytes:
    """Return a classic member's partitions as an encoded assignment, in the version of its subscription."""
    partitions = tuple(
        TopicPartition(topic.name, number)
        for topic_id, numbers in member.assigned.items()
        if (topic := image.topic_by_id(topic_id)) is not None
        for number in sorted(numbers)
    )
    version = subscription_version(member.classic_protocols[0].metadata) if member.classic_protocols else 0
    return encode_assignment(EmbeddedAssignment(partitions=partitions), version)
