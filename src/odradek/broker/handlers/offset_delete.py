"""OffsetDelete: delete committed offsets of a group (KIP-496). The group's coordinator serves it.

A group with members keeps the offsets of its subscribed topics, or all offsets if the subscriptions are unknown. When
the response is sent, the deletion is committed.
"""

from typing import Any, Protocol

from odradek.broker.parts import HasGroups, HasImage
from odradek.broker.serving.context import RequestContext
from odradek.groups.messages import DeleteOffsetsRequest
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.security import AclOperation, ResourceType


class _Broker(HasGroups, HasImage, Protocol): ...


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one error per partition, or a single error of the group."""
    denied = context.denied(AclOperation.READ, ResourceType.TOPIC, (topic.name for topic in message.topics))
    wanted = {
        TopicPartition(topic.name, each.partition_index): (
            ErrorCode.topic_authorization_failed if topic.name in denied else ErrorCode.none
        )
        for topic in message.topics
        for each in topic.partitions
    }
    try:
        await _delete(broker, message.group_id, wanted)
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (name, number), error_code in wanted.items():
        by_topic.setdefault(name, []).append({"partition_index": number, "error_code": error_code})
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]}


async def _delete(broker: _Broker, group_id: str, wanted: dict[TopicPartition, ErrorCode]) -> None:
    """Delete the offsets without an error in `wanted`, and set their errors there. Raises the group's `KafkaError`."""
    for partition, refused in wanted.items():
        if not refused and broker.image.partition(partition) is None:
            wanted[partition] = ErrorCode.unknown_topic_or_partition
    deletable = tuple(partition for partition, error in wanted.items() if error is ErrorCode.none)
    reply = await broker.groups.submit(group_id, DeleteOffsetsRequest(partitions=deletable))
    if isinstance(reply, ErrorCode):
        raise KafkaError(reply)
    wanted.update(reply)
