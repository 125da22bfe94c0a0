"""AlterPartition: a leader requests new ISRs for its partitions, and the controller decides (KIP-497).

The sender must be registered with the broker epoch in the request. Versions: 2 topic ids, 3 the broker epochs of the
ISR's members (KIP-903).
"""

from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.alter_partition_manager import WrittenIsr
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.metadata.isr_request import ANY_EPOCH, AlterPartitionItem
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.alter_partition.v3.request import AlterPartitionRequest as Message
    from kio.schema.alter_partition.v3.request import PartitionData


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per partition; NOT_CONTROLLER and STALE_BROKER_EPOCH are errors of the request."""
    names = broker.image.topic_names
    entries = [(topic.topic_id, each) for topic in message.topics for each in topic.partitions]
    items = {
        TopicPartition(names[topic_id], each.partition_index): _item(context.api_version, each)
        async for topic_id, each in cooperatively(entries, _weight)
        if topic_id is not None and topic_id in names
    }
    try:
        results = await broker.controller.alter_partitions(message.broker_id, message.broker_epoch, items)
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    topics: dict[UUID | None, list[dict[str, object]]] = {}
    async for topic_id, each in cooperatively(entries, light):
        name = None if topic_id is None else names.get(topic_id)
        result = (
            KafkaError(ErrorCode.unknown_topic_id)
            if name is None
            else results[TopicPartition(name, each.partition_index)]
        )
        partition = {"partition_index": each.partition_index, **_answer(result)}
        topics.setdefault(topic_id, []).append(partition)
    answers = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
    return {"error_code": ErrorCode.none, "topics": answers}


def _weight(entry: tuple[UUID | None, Any]) -> int:
    _, each = entry
    return 2 + len(optional(each, "new_isr", ())) + len(optional(each, "new_isr_with_epochs", ()))


def _item(version: int, each: "PartitionData") -> AlterPartitionItem:
    if version >= 3:
        isr: dict[int, int] = {member.broker_id: member.broker_epoch for member in each.new_isr_with_epochs}
    else:
        isr = dict.fromkeys(optional(each, "new_isr", ()), ANY_EPOCH)
    return AlterPartitionItem(
        isr=isr,
        leader_epoch=each.leader_epoch,
        partition_epoch=each.partition_epoch,
        leader_recovery_state=each.leader_recovery_state,
    )


def _answer(result: WrittenIsr | KafkaError) -> dict[str, object]:
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
