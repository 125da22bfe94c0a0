"""A broker's log directories with the sizes of logs and volumes, and moves of replicas between them (KIP-113)."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from odradek.clients.admin.results import RefusedPartitionsError
from odradek.clients.arguments import Partition, PartitionT, by_partition, partitions_of
from odradek.clients.cluster import Cluster
from odradek.clients.offsets import by_topic
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional


class LogDirDescription(Struct, frozen=True, kw_only=True):
    """A log directory of a broker, with log `sizes` in bytes; an offline one has an `error_code` and no sizes.

    `future_sizes` are those of the copies of logs that move here from another directory. `total_bytes` and
    `usable_bytes` are those of its volume (KIP-827), None if unknown.
    """

    log_dir: str
    error_code: ErrorCode
    sizes: Mapping[TopicPartition, int]
    total_bytes: int | None
    usable_bytes: int | None
    future_sizes: Mapping[TopicPartition, int] = {}


async def describe_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[Partition] | None = None
) -> list[LogDirDescription]:
    """Return a broker's log directories with the size of each log in bytes, of `partitions` or of all (KIP-113)."""
    topics = None
    if partitions is not None:
        chosen = by_topic(partitions_of(partitions))
        topics = [{"topic": topic, "partitions": [each.partition for each in some]} for topic, some in chosen]

    async def attempt() -> list[LogDirDescription]:
        connection = await cluster.connections.to_broker(broker_id)
        response = await connection.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics})
        code = optional(response, "error_code", ErrorCode.none)
        if code != ErrorCode.none:
            raise KafkaError(code, f"broker {broker_id}: {explained(code)}")
        return [_description(each) for each in response.results]

    return await retrying(cluster, attempt)


async def alter_replica_log_dirs(cluster: Cluster, broker_id: int, paths: Mapping[PartitionT, str]) -> None:
    """Begin to move replicas of a broker to other directories of it; `describe_log_dirs` shows the progress.

    A broker without a replica of a partition refuses it with REPLICA_NOT_AVAILABLE, and will create it in that
    directory. Raises `RefusedPartitionsError` for refused partitions; the others are moved.
    """
    wanted = by_partition(paths)
    dirs = [
        {
            "path": path,
            "topics": [
                {"name": topic, "partitions": [each.partition for each in some]}
                for topic, some in by_topic([key for key in wanted if wanted[key] == path])
            ],
        }
        for path in sorted(set(wanted.values()))
    ]

    async def attempt() -> None:
        connection = await cluster.connections.to_broker(broker_id)
        response = await connection.request(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
        errors = {}
        for topic in response.results:
            for each in topic.partitions:
                key, code = TopicPartition(topic.topic_name, each.partition_index), each.error_code
                if code != ErrorCode.none:
                    errors[key] = KafkaError(code, f"{key} on broker {broker_id}: {explained(code)}")
        if errors:
            raise RefusedPartitionsError(errors)

    await retrying(cluster, attempt)


def _description(result: Any) -> LogDirDescription:
    """Convert a directory of the response (kio's)."""
    sizes: dict[TopicPartition, int] = {}
    future_sizes: dict[TopicPartition, int] = {}
    for topic in result.topics:
        for each in topic.partitions:
            found = future_sizes if each.is_future_key else sizes
            found[TopicPartition(topic.name, each.partition_index)] = each.partition_size
    total, usable = optional(result, "total_bytes", -1), optional(result, "usable_bytes", -1)
    return LogDirDescription(
        log_dir=result.log_dir,
        error_code=ErrorCode(result.error_code),
        sizes=sizes,
        total_bytes=None if total < 0 else total,
        usable_bytes=None if usable < 0 else usable,
        future_sizes=future_sizes,
    )
