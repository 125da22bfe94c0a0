"""DeleteRecords: a partition begins at a later offset from now on (KIP-107); its leader does it.

Segments that are below it altogether go when retention next looks. The new beginning is on the disk before the answer
leaves, so that what was deleted does not come back after a crash (Kafka writes it down once a minute). With one replica
the low watermark is the leader's. Version 2 is flexible.
"""

from typing import TYPE_CHECKING, Any, Final

from odradek.broker.serving.admission import authorization_error
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

HIGH_WATERMARK: Final = -1
"""In place of an offset: delete all that is committed."""
_UNKNOWN: Final = -1


def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """OFFSET_OUT_OF_RANGE beyond the high watermark; POLICY_VIOLATION where `cleanup.policy` does not delete."""
    denied = context.denied(AclOperation.DELETE, ResourceType.TOPIC, (topic.name for topic in message.topics))
    topics = []
    is_changed = False
    for topic in message.topics:
        partitions = []
        for wanted in topic.partitions:
            result = {"partition_index": wanted.partition_index, "low_watermark": _UNKNOWN}
            try:
                if topic.name in denied:
                    raise authorization_error(ResourceType.TOPIC)
                before, result["low_watermark"] = _delete(broker, topic.name, wanted.partition_index, wanted.offset)
                is_changed |= result["low_watermark"] > before
            except KafkaError as error:
                result["error_code"] = error.code
            partitions.append(result)
        topics.append({"name": topic.name, "partitions": partitions})
    if is_changed:
        broker.logs.checkpoints.write_all()
    return {"topics": topics}


def _delete(broker: "Broker", topic: str, number: int, offset: int) -> tuple[int, int]:
    """Where the partition began and where it begins now."""
    partition = broker.partitions.leader(topic, number)
    if broker.is_internal(topic):
        raise KafkaError(ErrorCode.invalid_topic_exception, f"the cluster needs the records of {topic}")
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.policy_violation, f"cleanup.policy of {topic} does not delete")
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.offset_out_of_range, f"{offset} is no offset")
    before = log.log_start_offset
    log.advance_log_start_offset(offset, high_watermark=partition.high_watermark)
    return before, log.log_start_offset
