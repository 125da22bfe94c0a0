"""ListOffsets: the first and end offsets of partitions, and offsets by timestamp."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError, explained
from odradek.protocol.api import ApiKey

EARLIEST: Final = -2
"""The timestamp that requests the first offset."""
LATEST: Final = -1
"""The timestamp that requests the end offset, which is after the last readable record."""
MAX_TIMESTAMP: Final = -3
"""The timestamp that requests the offset of the record with the greatest timestamp (KIP-734)."""

ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


class OffsetAndTimestamp(NamedTuple):
    """An offset with the timestamp in ms and the leader epoch of its record; -1 means unknown."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: str = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return the offset of each partition in `wanted` for `EARLIEST`, `LATEST`, or a time in ms.

    A time gives the first record at or after it, offset -1 if all records are earlier. With `read_committed`, `LATEST`
    is the last stable offset. Raises `KafkaError` for an unknown partition, `UnavailableError` for an unreachable
    leader.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        missing = {partition: at for partition, at in wanted.items() if partition not in found}
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, at in missing.items():
            leader = await cluster.leader(partition, timeout_ms=timeout_ms)
            by_leader.setdefault(leader, {})[partition] = at
        answers = await asyncio.gather(
            *(_request_offsets(cluster, leader, some, isolation_level) for leader, some in by_leader.items()),
            return_exceptions=True,
        )
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        for answer in answers:
            if not isinstance(answer, BaseException):
                found.update(answer[0])
                failures += answer[1]
        if failures:
            # An error that is not retriable ends the retries.
            raise min(failures, key=lambda failure: getattr(failure, "retriable", False))

    await retrying(cluster, attempt, timeout_ms=timeout_ms)
    return {partition: found[partition] for partition in wanted}


async def partitions_of(cluster: Cluster, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return partition numbers by topic, ascending. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
    return {name: (await cluster.topic(name)).numbers for name in topics}


async def _request_offsets(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], isolation_level: str
) -> tuple[dict[TopicPartition, OffsetAndTimestamp], list[KafkaError | UnavailableError]]:
    """Send one ListOffsets to one leader; return the offsets by partition, and the errors of other partitions."""
    connection = await cluster.connections.to_broker(leader)
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": partition.partition,
                    "current_leader_epoch": _leader_epoch(cluster, partition),
                    "timestamp": wanted[partition],
                }
                for partition in some
            ],
        }
        for name, some in by_topic(wanted)
    ]
    response = await connection.request(
        ApiKey.LIST_OFFSETS,
        {
            "replica_id": -1,
            "isolation_level": ISOLATION_LEVELS[isolation_level],
            "topics": topics,
            "timeout": cluster.settings.request_timeout_ms,
        },
    )
    found = {}
    failures: list[KafkaError | UnavailableError] = []
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code == ErrorCode.none:
                found[partition] = _offset(each)
            else:
                failures.append(KafkaError(each.error_code, f"partition {partition}: {explained(each.error_code)}"))
    return found, failures


def _offset(partition: Any) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(partition.offset, partition.timestamp, getattr(partition, "leader_epoch", -1))


def _leader_epoch(cluster: Cluster, partition: TopicPartition) -> int:
    known = cluster.metadata.partition(partition)
    return known.leader_epoch if known is not None else -1


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Return the partitions grouped by topic, sorted."""
    return [(topic, list(some)) for topic, some in groupby(sorted(partitions), key=lambda partition: partition.topic)]
