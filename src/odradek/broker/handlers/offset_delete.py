"""OffsetDelete: delete offsets of a group that its members do not need (KIP-496). The group's coordinator serves it.

A group with members keeps the offsets of subscribed topics, and all of them if the subscriptions are unknown. When the
response is sent, the deletion is committed.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.groups import ClassicGroup, State
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one error per partition, or one for the group at the top."""
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


async def _delete(broker: "Broker", group_id: str, wanted: dict[TopicPartition, ErrorCode]) -> None:
    """Delete the offsets that may be deleted, and put the errors of others into `wanted`.

    Raises `KafkaError` for all.
    """
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    await broker.groups.shard_of(group_id).writes_completed()
    shard = broker.groups.shard_of(group_id)
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.group_id_not_found)
    kept_topics = _kept_topics(group)
    for partition, refused in wanted.items():
        if refused:
            continue
        if broker.image.partition(partition) is None:
            wanted[partition] = ErrorCode.unknown_topic_or_partition
        elif kept_topics is None or partition.topic in kept_topics:
            wanted[partition] = ErrorCode.group_subscribed_to_topic
    deletable = {partition for partition, error in wanted.items() if error is ErrorCode.none}
    error = await shard.delete_offsets(group_id, deletable)
    if error is not ErrorCode.none:
        raise KafkaError(error)


def _kept_topics(group: ClassicGroup) -> Collection[str] | None:
    """Return the topics that members need, None for all.

    Raises `KafkaError` NON_EMPTY_GROUP for other protocol types.
    """
    if group.state is State.EMPTY:
        return ()
    if group.protocol_type != PROTOCOL_TYPE:
        raise KafkaError(ErrorCode.non_empty_group)
    return group.subscribed_topics()
