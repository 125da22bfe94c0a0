"""OffsetDelete: delete committed offsets of a group (KIP-496). The group's coordinator serves it.

A group with members keeps the offsets of its subscribed topics, or all offsets if the subscriptions are unknown. When
the response is sent, the deletion is committed.
"""

from typing import TYPE_CHECKING

from odradek.broker.groups.machine.group_coordinator_machine import MOST_DELETED
from odradek.broker.groups.machine.messages import DeleteOffsetsRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps, in_turns
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per partition, or a single error of the group."""
    wanted = await in_turns(_wanted(broker, context, message))
    try:
        await _delete(broker, message.group_id, wanted)
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    by_topic: dict[str, list[dict[str, object]]] = {}
    for (name, number), error_code in wanted.items():
        by_topic.setdefault(name, []).append({"partition_index": number, "error_code": error_code})
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]}


def _wanted(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[TopicPartition, ErrorCode]]:
    """Return the requested partitions with their errors; NONE for those whose offsets may be deleted."""
    names = (topic.name for topic in message.topics)
    denied = yield from context.denied(AclOperation.READ, ResourceType.TOPIC, names)
    wanted: dict[TopicPartition, ErrorCode] = {}
    for topic in message.topics:
        for each in topic.partitions:
            key, error = TopicPartition(topic.name, each.partition_index), ErrorCode.none
            if topic.name in denied:
                error = ErrorCode.topic_authorization_failed
            elif broker.image.partition(key) is None:
                error = ErrorCode.unknown_topic_or_partition
            wanted[key] = error
            yield 1
    return wanted


async def _delete(broker: BrokerParts, group_id: str, wanted: dict[TopicPartition, ErrorCode]) -> None:
    """Delete the offsets without an error in `wanted`, and set their errors there. Raises the group's `KafkaError`."""
    deletable = [partition for partition, error in wanted.items() if error is ErrorCode.none]
    for start in range(0, len(deletable) or 1, MOST_DELETED):
        part = tuple(deletable[start : start + MOST_DELETED])
        reply = await broker.groups.submit(group_id, DeleteOffsetsRequest(partitions=part))
        if isinstance(reply, ErrorCode):
            raise KafkaError(reply)
        wanted.update(reply)
