"""DescribeProducers: the idempotent producers of a partition, and their open transactions (KIP-664).

Leaders and followers return the producers of their own log, as in Kafka, for `kafka-transactions find-hanging
--broker-id`.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import KafkaError, validate_topic_name
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return one description per partition, also for a partition that is named twice."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    denied = yield from context.denied(AclOperation.READ, ResourceType.TOPIC, wanted)
    topics = []
    for name, numbers in wanted.items():
        partitions = []
        for number in numbers:
            partitions.append((yield from _describe(broker.partitions, name, number, is_denied=name in denied)))
            yield 2
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


def _describe(partitions: ReplicaManager, topic: str, number: int, *, is_denied: bool) -> Steps[dict[str, object]]:
    try:
        if is_denied:
            raise authorization_error(ResourceType.TOPIC)
        producers = partitions.log(validate_topic_name(topic), number).producers
    except KafkaError as error:
        return {
            "partition_index": number,
            "error_code": error.code,
            "error_message": error.message,
            "active_producers": [],
        }
    active = []
    for producer_id in tuple(producers.entries):  # not `items()`: pairs would set off a full garbage collection
        entry = producers.entries.get(producer_id)
        if entry is None:  # it expired since the turn before
            continue
        active.append(
            {
                "producer_id": producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_start,
            }
        )
        yield 1
    return {"partition_index": number, "active_producers": active}
