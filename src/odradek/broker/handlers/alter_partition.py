"""AlterPartition: a leader requests new ISRs for its partitions, and the controller decides (KIP-497).

The sender must be registered with the broker epoch in the request. Versions: 2 topic ids, 3 the broker epochs of the
ISR's members (KIP-903).
"""

from typing import Any, Protocol

from odradek.broker.parts import HasController, HasImage
from odradek.broker.replication.alter_partition_requests import WrittenIsr
from odradek.broker.serving.context import RequestContext
from odradek.controller import AlterPartitionItem
from odradek.controller.alter_partition import ANY_EPOCH
from odradek.model import ErrorCode, KafkaError, TopicPartition


class _Broker(HasController, HasImage, Protocol): ...


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one result per partition; NOT_CONTROLLER and STALE_BROKER_EPOCH are errors of the request."""
    names = broker.image.topic_names
    items = {
        TopicPartition(names[topic.topic_id], each.partition_index): _item(context.api_version, each)
        for topic in message.topics
        if topic.topic_id in names
        for each in topic.partitions
    }
    try:
        results = await broker.controller.alter_partitions(message.broker_id, message.broker_epoch, items)
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    topics = []
    for topic in message.topics:
        name = names.get(topic.topic_id)
        partitions = []
        for each in topic.partitions:
            result = (
                KafkaError(ErrorCode.unknown_topic_id)
                if name is None
                else results[TopicPartition(name, each.partition_index)]
            )
            partitions.append({"partition_index": each.partition_index, **_answer(result)})
        topics.append({"topic_id": topic.topic_id, "partitions": partitions})
    return {"error_code": ErrorCode.none, "topics": topics}


def _item(version: int, each: Any) -> AlterPartitionItem:
    if version >= 3:
        isr = {member.broker_id: member.broker_epoch for member in each.new_isr_with_epochs}
    else:
        isr = dict.fromkeys(each.new_isr, ANY_EPOCH)
    return AlterPartitionItem(
        isr=isr,
        leader_epoch=each.leader_epoch,
        partition_epoch=each.partition_epoch,
        leader_recovery_state=each.leader_recovery_state,
    )


def _answer(result: WrittenIsr | KafkaError) -> dict[str, Any]:
    if isinstance(result, KafkaError):
        return {"error_code": result.code, "leader_id": -1, "leader_epoch": -1, "partition_epoch": -1}
    return {
        "error_code": ErrorCode.none,
        "leader_id": result.leader_id,
        "leader_epoch": result.leader_epoch,
        "isr": result.isr,
        "leader_recovery_state": result.leader_recovery_state,
        "partition_epoch": result.partition_epoch,
    }
