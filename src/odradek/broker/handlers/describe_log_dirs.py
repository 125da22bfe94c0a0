"""DescribeLogDirs: this broker's data directories, the logs in them, and their sizes (KIP-113).

Logs of topics that are not in the metadata are included, as they use disk space. The copy of a log that moves to
another directory is a future log, and its lag is what is left to copy. Versions: 3 an error of the request, 4 the
volume's space (KIP-827), 5 whether a directory is cordoned (KIP-1066), which none is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.interfaces import BrokerParts
from odradek.broker.log.log import Log
from odradek.broker.log.names import parent_of
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import ErrorCode, TopicPartition

if TYPE_CHECKING:
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest as Message

_Found: TypeAlias = tuple[TopicPartition, Log, Log | None]
"""A partition and its log, or a copy and the log that it copies."""


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return each directory with the requested logs (null: all) in it; KAFKA_STORAGE_ERROR if it is offline."""
    del context
    asked_for = None
    if message.topics is not None:
        asked_for = {TopicPartition(each.topic, number) for each in message.topics for number in each.partitions}
    by_directory: dict[str, list[_Found]] = {directory: [] for directory in broker.logs.directories.paths}
    for key, log in broker.logs.logs.items():
        if asked_for is None or key in asked_for:
            by_directory[parent_of(log.directory)].append((key, log, None))
    for key, future in broker.logs.futures.items():
        if asked_for is None or key in asked_for:
            by_directory[parent_of(future.log.directory)].append((key, future.log, future.source))
    results = []
    for directory, logs in sorted(by_directory.items()):
        results.append((yield from _directory(broker, directory, logs)))
    return {"results": results}


def _directory(broker: BrokerParts, directory: str, logs: Sequence[_Found]) -> Steps[dict[str, object]]:
    disk = broker.runtime.disk
    result: dict[str, object] = {"log_dir": disk.absolute(directory), "topics": []}
    if directory in broker.logs.directories.offline:
        return result | {"error_code": ErrorCode.kafka_storage_error}
    try:
        space = disk.space(directory)
    except OSError:
        return result | {"error_code": ErrorCode.kafka_storage_error}
    by_topic: dict[str, list[dict[str, object]]] = {}
    for topic_partition, log, source in sorted(logs, key=lambda each: each[0]):
        lag = (
            _lag(broker.partitions, topic_partition, log)
            if source is None
            else source.log_end_offset - log.log_end_offset
        )
        by_topic.setdefault(topic_partition.topic, []).append(
            {
                "partition_index": topic_partition.partition,
                "partition_size": log.segments.size,
                "offset_lag": max(lag, 0),
                "is_future_key": source is not None,
            }
        )
        yield 1
    result["topics"] = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    return result | space._asdict()


def _lag(partitions: ReplicaManager, topic_partition: TopicPartition, log: Log) -> int:
    """Return how many offsets the log is behind the high watermark; 0 if this broker does not lead the partition."""
    partition = partitions.get(topic_partition)
    return 0 if partition is None else max(partition.high_watermark - log.log_end_offset, 0)
