"""OffsetCommit: store the offsets from which a group's consumers go on.

A consumer that is not a member commits with generation -1, which is refused while the group has members. Versions: 2 to
4 a retention time, 6 leader epochs (KIP-320), 7 static members (KIP-345), 9 GROUP_ID_NOT_FOUND (KIP-848), 10 topic ids
in place of names.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.messages import CommitRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext, WhenDone
from odradek.broker.turns import Steps
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from odradek.protocol.messages.message_codec import milliseconds, optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest as Message
    from kio.schema.offset_commit.v10.request import OffsetCommitRequestTopic

_GROUP_ID_NOT_FOUND_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object] | WhenDone]:
    """Return one error per partition; an error of the group is repeated at every partition."""
    answers: list[dict[str, object]] = []
    values: dict[TopicPartition, OffsetCommitValue] = {}
    accepted: list[dict[str, object]] = []
    now_ms, most_bytes = broker.runtime.clock.now_ms(), broker.config.offset_metadata_max_bytes
    expire_timestamp = _expire_timestamp(message, now_ms)
    is_group_denied = not context.allows(AclOperation.READ, ResourceType.GROUP, message.group_id)
    for topic in message.topics:
        by_id = context.api_version >= _TOPIC_IDS_FROM
        name = optional(topic, "name", "")
        known = broker.image.topic_by_id(topic.topic_id) if by_id else broker.image.topics.get(name)
        if by_id and known is not None:
            name = known.name
        is_denied = bool(name) and not context.allows(AclOperation.READ, ResourceType.TOPIC, name)
        partitions: list[dict[str, object]] = []
        for wanted in topic.partitions:
            error = ErrorCode.none
            if is_group_denied:
                error = ErrorCode.group_authorization_failed
            elif is_denied:
                error = ErrorCode.topic_authorization_failed
            elif known is None:
                error = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            elif wanted.partition_index not in known.partitions:
                error = ErrorCode.unknown_topic_or_partition
            elif len(wanted.committed_metadata or "") > most_bytes:
                error = ErrorCode.offset_metadata_too_large
            answer: dict[str, object] = {"partition_index": wanted.partition_index, "error_code": error}
            partitions.append(answer)
            if known is not None and error is ErrorCode.none:
                accepted.append(answer)
                values[TopicPartition(known.name, wanted.partition_index)] = OffsetCommitValue(
                    offset=wanted.committed_offset,
                    leader_epoch=optional(wanted, "committed_leader_epoch", -1),
                    metadata=wanted.committed_metadata or "",
                    commit_timestamp=now_ms,
                    expire_timestamp=expire_timestamp,
                )
            yield 1
        answers.append({**_name(topic, by_id=by_id), "partitions": partitions})
        yield 1
    if not values:
        return {"topics": answers}

    def committed(reply: "asyncio.Future[ErrorCode]") -> dict[str, object]:
        error = _result(reply)
        for answer in accepted:
            answer["error_code"] = error
        return {"topics": answers}

    return WhenDone(broker.groups.submit(message.group_id, _request(context, message, values)), committed)


def _request(
    context: RequestContext, message: "Message", values: dict[TopicPartition, OffsetCommitValue]
) -> CommitRequest:
    has_code = context.api_version >= _GROUP_ID_NOT_FOUND_FROM
    return CommitRequest(
        member_id=message.member_id,
        instance_id=optional(message, "group_instance_id", None),
        generation=message.generation_id_or_member_epoch,
        values=values,
        has_member_epoch=has_code,
        missing_group_error=ErrorCode.group_id_not_found if has_code else ErrorCode.illegal_generation,
    )


def _result(reply: "asyncio.Future[ErrorCode]") -> ErrorCode:
    try:
        return reply.result()
    except KafkaError as refused:
        return refused.code


def _expire_timestamp(message: "Message", now_ms: int) -> int:
    """Return the expiry in ms, which versions 2 to 4 can set; -1 stands for the broker's retention."""
    retention = getattr(message, "retention_time", None)
    retention_ms = -1 if retention is None else milliseconds(retention)
    return -1 if retention_ms < 0 else now_ms + retention_ms


def _name(topic: "OffsetCommitRequestTopic", *, by_id: bool) -> dict[str, object]:
    return {"topic_id": topic.topic_id} if by_id else {"name": optional(topic, "name", "")}
