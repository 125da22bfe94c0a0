"""DeleteRecords: advance the log start offset of partitions (KIP-107). The leader serves it.

Retention deletes the segments below the offset later. The response is sent when the offset is on the leader's disk and
all live replicas have it, so that deleted records do not come back after a crash or an election (Kafka writes the
offset once a minute). If a live replica lacks it at the request's timeout, its partition gets REQUEST_TIMED_OUT.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps, cooperatively, in_turns
from odradek.model import ErrorCode, KafkaError
from odradek.model.names import INTERNAL_TOPICS
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest as Message

HIGH_WATERMARK: Final = -1
"""An offset that stands for the high watermark."""
_UNKNOWN: Final = -1
_POLL_S: Final = 0.01
"""The interval in which the replicas' offsets are compared: deletions are rare, and followers fetch all the time."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return each partition's low watermark, which is its new log start offset.

    Errors: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION if `cleanup.policy` lacks `delete`,
    INVALID_TOPIC_EXCEPTION for internal topics.
    """
    topics, waiting = await in_turns(_delete_all(broker, context, message))
    deadline_s = broker.runtime.clock.monotonic() + message.timeout.total_seconds()
    async for name, result in cooperatively(waiting):
        await _wait_for_replicas(broker, name, result, deadline_s)
    return {"topics": topics}


def _delete_all(
    broker: BrokerParts, context: RequestContext, message: "Message"
) -> Steps[tuple[list[dict[str, object]], list[tuple[str, dict[str, int]]]]]:
    """Advance the log start offsets; return the response's topics, and `(topic, result)` of each partition changed."""
    names = (topic.name for topic in message.topics)
    denied = yield from context.denied(AclOperation.DELETE, ResourceType.TOPIC, names)
    topics: list[dict[str, object]] = []
    waiting: list[tuple[str, dict[str, int]]] = []
    is_changed = False
    try:
        for topic in message.topics:
            partitions = []
            for wanted in topic.partitions:
                result = {"partition_index": wanted.partition_index, "low_watermark": _UNKNOWN}
                try:
                    if topic.name in denied:
                        raise authorization_error(ResourceType.TOPIC)
                    before, result["low_watermark"] = _delete(
                        broker.partitions, topic.name, wanted.partition_index, wanted.offset
                    )
                    is_changed |= result["low_watermark"] > before
                    waiting.append((topic.name, result))
                except KafkaError as error:
                    result["error_code"] = error.code
                partitions.append(result)
                yield 2
            topics.append({"name": topic.name, "partitions": partitions})
    finally:
        if is_changed:
            broker.logs.checkpoints.write_all()
    return topics, waiting


async def _wait_for_replicas(broker: BrokerParts, topic: str, result: dict[str, int], deadline_s: float) -> None:
    """Wait until all replicas have the new log start offset, or set an error in the result."""
    try:
        while broker.partitions.leader(topic, result["partition_index"]).low_watermark < result["low_watermark"]:
            if broker.runtime.clock.monotonic() >= deadline_s:
                raise KafkaError(ErrorCode.request_timed_out)
            await asyncio.sleep(_POLL_S)
    except KafkaError as error:
        result["low_watermark"], result["error_code"] = _UNKNOWN, error.code


def _delete(partitions: ReplicaManager, topic: str, number: int, offset: int) -> tuple[int, int]:
    """Advance the log start offset to `offset` (-1: the high watermark); return the old and the new one."""
    partition = partitions.leader(topic, number)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"the cluster needs the records of {topic}")
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.policy_violation, f"cleanup.policy of {topic} does not delete")
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.offset_out_of_range, f"{offset} is not an offset")
    before = log.log_start_offset
    log.advance_log_start_offset(offset, high_watermark=partition.high_watermark)
    return before, log.log_start_offset
