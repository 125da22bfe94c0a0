"""DescribeProducers: the idempotent producers of a partition, and their open transactions (KIP-664).

Leaders and followers return the producers of their own log, as in Kafka, for `kafka-transactions find-hanging
--broker-id`.
"""

from typing import Any

from odradek.broker.parts import HasPartitions
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.context import RequestContext
from odradek.model import KafkaError, validate_topic_name
from odradek.security import AclOperation, ResourceType


def handle(broker: HasPartitions, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one description per partition, also for a partition that is named twice."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {"name": name, "partitions": [_describe(broker.partitions, context, name, number) for number in numbers]}
            for name, numbers in wanted.items()
        ]
    }


def _describe(partitions: ReplicaManager, context: RequestContext, topic: str, number: int) -> dict[str, Any]:
    try:
        context.check(AclOperation.READ, ResourceType.TOPIC, topic)
        producers = partitions.log(validate_topic_name(topic), number).producers
    except KafkaError as error:
        return {
            "partition_index": number,
            "error_code": error.code,
            "error_message": str(error),
            "active_producers": [],
        }
    return {
        "partition_index": number,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_start,
            }
            for producer_id, entry in producers.entries.items()
        ],
    }
