"""TxnOffsetCommit: store a group's offsets when the producer's transaction commits (KIP-98).

Until the transaction's marker the offsets are pending. Versions: 3 the group's member, which is checked if it is given
(KIP-447), 4 TRANSACTION_ABORTABLE, 5 the group's partition of `__consumer_offsets` is added to the transaction
(KIP-890), 6 topic ids in place of names, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

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
    from odradek.protocol.messages.newer.txn_offset_commit import TxnOffsetCommitRequest as Message

_TOPIC_IDS_FROM: Final = 6
_Place = tuple[Hashable, int]
"""A topic's name or id, as in the request, and a partition."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per partition; an error of the transaction or the group is repeated at every partition."""
    try:
        context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        context.check(AclOperation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as error:
        return _answer(context, message, {}, otherwise=error.code)
    errors, values = await in_turns(_sort_out(broker, context, message))
    outcome = await _commit(broker, context, message, values) if values else ErrorCode.none
    return _answer(context, message, errors, otherwise=outcome)


def _sort_out(
    broker: BrokerParts, context: RequestContext, message: "Message"
) -> Steps[tuple[dict[_Place, ErrorCode], dict[TopicPartition, OffsetCommitValue]]]:
    """Return the errors of partitions that are refused, and the offsets of the others."""
    errors: dict[_Place, ErrorCode] = {}
    values: dict[TopicPartition, OffsetCommitValue] = {}
    names = [_name(broker, context, topic) for topic in message.topics]
    denied = yield from context.denied(AclOperation.READ, ResourceType.TOPIC, filter(None, names))
    for name, topic in zip(names, message.topics, strict=True):
        for wanted in topic.partitions:
            place = _reference(context, topic), wanted.partition_index
            if name is None:
                errors[place] = ErrorCode.unknown_topic_id
            elif name in denied:
                errors[place] = ErrorCode.topic_authorization_failed
            elif broker.image.partition(key := TopicPartition(name, wanted.partition_index)) is None:
                errors[place] = ErrorCode.unknown_topic_or_partition
            elif len(wanted.committed_metadata or "") > broker.config.offset_metadata_max_bytes:
                errors[place] = ErrorCode.offset_metadata_too_large
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
    is_new = context.api_version >= _TOPIC_IDS_FROM
    request = CommitRequest(
        member_id=optional(message, "member_id", ""),
        instance_id=optional(message, "group_instance_id", None),
        generation=optional(message, "generation_id", NO_GENERATION),
        values=values,
        missing_group_error=ErrorCode.group_id_not_found if is_new else ErrorCode.illegal_generation,
        stale_epoch_error=ErrorCode.stale_member_epoch if is_new else ErrorCode.illegal_generation,
        producer=producer,
    )
    try:
        committed: ErrorCode = await broker.groups.submit(message.group_id, request)
    except KafkaError as refused:
        return refused.code
    return committed


def _name(broker: BrokerParts, context: RequestContext, topic: Any) -> str | None:
    """Return the topic's name; None for an unknown id."""
    if context.api_version < _TOPIC_IDS_FROM:
        name: str = topic.name
        return name
    known = broker.image.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def _reference(context: RequestContext, topic: Any) -> Hashable:
    """Return the topic's name or id in the request."""
    reference: Hashable = topic.topic_id if context.api_version >= _TOPIC_IDS_FROM else topic.name
    return reference


def _answer(
    context: RequestContext, message: "Message", errors: dict[_Place, ErrorCode], *, otherwise: ErrorCode
) -> dict[str, object]:
    named = "topic_id" if context.api_version >= _TOPIC_IDS_FROM else "name"
    return {
        "topics": [
            {
                named: _reference(context, topic),
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": errors.get((_reference(context, topic), each.partition_index), otherwise),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }
