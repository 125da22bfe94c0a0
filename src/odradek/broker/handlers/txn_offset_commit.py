"""TxnOffsetCommit: store a group's offsets when the producer's transaction commits (KIP-98).

Until the transaction's marker the offsets are pending. Versions: 3 the group's member, which is checked if it is given
(KIP-447), 4 TRANSACTION_ABORTABLE, 5 the group's partition of `__consumer_offsets` is added to the transaction
(KIP-890).
"""

from typing import TYPE_CHECKING

from odradek.broker.coordinators.machine import Producer
from odradek.broker.groups.machine.messages import NO_GENERATION, CommitRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps, in_turns
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per partition; an error of the transaction or the group is repeated at every partition."""
    try:
        context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        context.check(AclOperation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as error:
        return _answer(message, {}, otherwise=error.code)
    errors, values = await in_turns(_sort_out(broker, context, message))
    outcome = await _commit(broker, context, message, values) if values else ErrorCode.none
    return _answer(message, errors, otherwise=outcome)


def _sort_out(
    broker: BrokerParts, context: RequestContext, message: "Message"
) -> Steps[tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, OffsetCommitValue]]]:
    """Return the errors of partitions that are refused, and the offsets of the others."""
    errors: dict[TopicPartition, ErrorCode] = {}
    values: dict[TopicPartition, OffsetCommitValue] = {}
    names = (topic.name for topic in message.topics)
    denied = yield from context.denied(AclOperation.READ, ResourceType.TOPIC, names)
    for topic in message.topics:
        for wanted in topic.partitions:
            key = TopicPartition(topic.name, wanted.partition_index)
            if topic.name in denied:
                errors[key] = ErrorCode.topic_authorization_failed
            elif broker.image.partition(key) is None:
                errors[key] = ErrorCode.unknown_topic_or_partition
            elif len(wanted.committed_metadata or "") > broker.config.offset_metadata_max_bytes:
                errors[key] = ErrorCode.offset_metadata_too_large
            else:
                values[key] = OffsetCommitValue(
                    offset=wanted.committed_offset,
                    leader_epoch=optional(wanted, "committed_leader_epoch", -1),
                    metadata=wanted.committed_metadata or "",
                    commit_timestamp=broker.runtime.clock.now_ms(),
                )
            yield 1
    return errors, values


async def _commit(
    broker: BrokerParts, context: RequestContext, message: "Message", values: dict[TopicPartition, OffsetCommitValue]
) -> ErrorCode:
    producer = Producer(producer_id=message.producer_id, epoch=message.producer_epoch)
    coordinator = broker.groups.context(message.group_id)
    if not message.group_id or coordinator is None:
        return ErrorCode.not_coordinator if message.group_id else ErrorCode.invalid_group_id
    error = await broker.verification.verify_offsets(
        coordinator.partition.topic_partition, message.transactional_id, producer, version=context.api_version
    )
    if error is not ErrorCode.none:
        return error
    request = CommitRequest(
        member_id=optional(message, "member_id", ""),
        instance_id=optional(message, "group_instance_id", None),
        generation=optional(message, "generation_id", NO_GENERATION),
        values=values,
        producer=producer,
    )
    try:
        committed: ErrorCode = await broker.groups.submit(message.group_id, request)
    except KafkaError as refused:
        return refused.code
    return committed


def _answer(message: "Message", errors: dict[TopicPartition, ErrorCode], *, otherwise: ErrorCode) -> dict[str, object]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": errors.get(TopicPartition(topic.name, each.partition_index), otherwise),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }
