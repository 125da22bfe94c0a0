"""AlterReplicaLogDirs: move replicas of this broker to other data directories of it (KIP-113).

The response is sent when the moves have begun; DescribeLogDirs shows their progress. A partition without a replica
here gets REPLICA_NOT_AVAILABLE, and its replica will be created in the directory, as in Kafka.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import HEAVY, Steps
from odradek.model import ErrorCode, KafkaError, TopicPartition

if TYPE_CHECKING:
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return an error for each partition; of a partition that is named twice, the last directory counts."""
    paths = {
        TopicPartition(topic.name, number): each.path
        for each in message.dirs
        for topic in each.topics
        for number in topic.partitions
    }
    results: dict[str, list[dict[str, object]]] = {}
    for key, path in paths.items():
        code = ErrorCode.none
        try:
            broker.logs.alter_directory(key, path, broker.runtime.clock.now_ms())
            context.log_change(f"the directory of {key} to {path}")
        except KafkaError as error:
            code = error.code
        results.setdefault(key.topic, []).append({"partition_index": key.partition, "error_code": code})
        yield HEAVY
    return {"results": [{"topic_name": name, "partitions": some} for name, some in results.items()]}
