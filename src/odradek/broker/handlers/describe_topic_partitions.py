"""DescribeTopicPartitions: topics and their partitions, in pages (KIP-966).

Topics are ordered by name, partitions by number. The cursor of a response is the start of the next page, null on the
last one. Eligible leader replicas are always empty, as only KRaft has them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.model import ErrorCode, InvalidTopicError, validate_topic_name
from odradek.security import NOT_ASKED_FOR, AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest as Message

MOST_PARTITIONS: Final = 2_000
"""Kafka's `max.request.partition.size.limit`: a client may request smaller pages only."""


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return one page of the requested topics, or of all if none is requested.

    A cursor before partition 0, or at a topic that was not requested, is INVALID_REQUEST for every topic.
    """
    image = broker.image
    names: set[str] = {topic.name for topic in message.topics}
    cursor = message.cursor
    topics: list[dict[str, object]] = []
    if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        for name in sorted(names):
            topics.append(_failed(name, ErrorCode.invalid_request, NOT_ASKED_FOR))
            yield 1
        return {"topics": topics}
    first_topic, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    room = max(min(message.response_partition_limit, MOST_PARTITIONS), 1)
    for name in sorted(name for name in names or image.topics if name >= first_topic):
        yield 16
        if not context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, quietly=not names):
            # A page must not begin at a topic that the client did not name and may not know.
            if names and room:
                topics.append(_failed(name, ErrorCode.topic_authorization_failed, NOT_ASKED_FOR))
            if not names or room:
                continue
        if not room:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        operations = context.authorized_operations(ResourceType.TOPIC, name)
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_failed(name, _why_not(name), operations))
            continue
        numbers = sorted(number for number in topic.partitions if name != first_topic or number >= first_partition)
        page, rest = numbers[:room], numbers[room:]
        topics.append(_known(topic, _partitions(image, topic, page, context.listener), operations))
        yield len(numbers)
        if rest:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": rest[0]}}
        room -= len(page)
    return {"topics": topics, "next_cursor": None}


def _known(topic: TopicImage, partitions: Iterator[dict[str, object]], operations: int) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": list(partitions),
        "topic_authorized_operations": operations,
    }


def _partitions(
    image: ClusterImage, topic: TopicImage, numbers: list[int], listener: str
) -> Iterator[dict[str, object]]:
    for number in numbers:
        partition = topic.partitions[number]
        leader = image.brokers.get(partition.leader)
        is_reachable = leader is not None and leader.endpoint(listener) is not None
        yield {
            "partition_index": number,
            "leader_id": partition.leader if is_reachable else -1,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "eligible_leader_replicas": [],
            "last_known_elr": [],
            "offline_replicas": [replica for replica in partition.replicas if replica not in image.brokers],
        }


def _failed(name: str, error: ErrorCode, operations: int) -> dict[str, object]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def _why_not(name: str) -> ErrorCode:
    try:
        validate_topic_name(name)
    except InvalidTopicError as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
