"""A group's committed offsets, for members and for consumers outside the group.

A commit with generation -1 and without member id is accepted while the group has no members. A committed offset is the
next offset to read (SPEC 7).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import by_topic
from odradek.clients.retry import DEFAULT_API_TIMEOUT_MS, retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.messages import optional
from odradek.wire.client_connection import ClientConnection

NO_GENERATION: Final = -1
_TOPIC_IDS_FROM: Final = 10
"""First version of OffsetCommit and OffsetFetch with topic ids (KIP-848); all brokers support the versions with
names."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset (the next to read), its metadata, and the leader epoch of the record before (-1: unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The member that commits; by default none."""

    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


NO_MEMBER: Final = ConsumerGroupMetadata()


async def find_coordinator(cluster: Cluster, group_id: str) -> int:
    """Return the coordinator's broker id. Raises `KafkaError` COORDINATOR_NOT_AVAILABLE while there is none."""
    connection = await cluster.least_loaded_connection()
    message = {"key": group_id, "key_type": 0, "coordinator_keys": [group_id]}
    response = await connection.request(ApiKey.FIND_COORDINATOR, message)
    found = response.coordinators[0] if hasattr(response, "coordinators") else response
    if found.error_code != ErrorCode.none:
        raise KafkaError(
            found.error_code, f"group {group_id!r}: {optional(found, 'error_message', found.error_code.name)}"
        )
    if found.node_id not in cluster.metadata.nodes:
        await cluster.refresh()
    return int(found.node_id)


async def commit_group_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    timeout_ms: int = DEFAULT_API_TIMEOUT_MS,
) -> None:
    """Commit without membership. Raises `KafkaError` UNKNOWN_MEMBER_ID if the group has members."""

    async def attempt() -> None:
        connection = await cluster.connection(await find_coordinator(cluster, group_id))
        await commit_once(connection, group_id, NO_MEMBER, offsets)

    if offsets:
        await retrying(cluster, attempt, timeout_ms=timeout_ms)


async def fetch_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int = DEFAULT_API_TIMEOUT_MS,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the group's committed offsets of `partitions` (None: all); partitions without a commit are absent."""
    wanted = None if partitions is None else list(partitions)

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        connection = await cluster.connection(await find_coordinator(cluster, group_id))
        return await fetch_once(connection, group_id, wanted)

    return await retrying(cluster, attempt, timeout_ms=timeout_ms)


async def commit_once(
    connection: ClientConnection,
    group_id: str,
    committer: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Send one OffsetCommit to the coordinator. Raises the first `KafkaError` in its response."""
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": partition.partition,
                    "committed_offset": offsets[partition].offset,
                    "committed_leader_epoch": offsets[partition].leader_epoch,
                    "committed_metadata": offsets[partition].metadata,
                }
                for partition in some
            ],
        }
        for name, some in by_topic(offsets)
    ]
    message = {
        "group_id": group_id,
        "generation_id_or_member_epoch": committer.generation_id,
        "member_id": committer.member_id,
        "group_instance_id": committer.group_instance_id,
        "retention_time": -1,
        "topics": topics,
    }
    response = await connection.request(ApiKey.OFFSET_COMMIT, message, at_most=_TOPIC_IDS_FROM - 1)
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code != ErrorCode.none:
                raise _error(f"group {group_id!r}, {topic.name}-{each.partition_index}", each.error_code)


async def fetch_once(
    connection: ClientConnection, group_id: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Send one OffsetFetch to the coordinator. Raises the first `KafkaError` in its response."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": name, "partition_indexes": [partition.partition for partition in some]}
            for name, some in by_topic(partitions)
        ]
    message = {
        "group_id": group_id,
        "topics": topics,
        "groups": [{"group_id": group_id, "topics": topics}],
        "require_stable": True,
    }
    response = await connection.request(ApiKey.OFFSET_FETCH, message, at_most=_TOPIC_IDS_FROM - 1)
    answer = response.groups[0] if hasattr(response, "groups") else response
    _raise(f"group {group_id!r}", optional(answer, "error_code", ErrorCode.none))
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            _raise(f"group {group_id!r}, {topic.name}-{each.partition_index}", each.error_code)
            if each.committed_offset >= 0:
                found[TopicPartition(topic.name, each.partition_index)] = _committed(each)
    return found


def _committed(partition: Any) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        partition.committed_offset, partition.metadata or "", optional(partition, "committed_leader_epoch", -1)
    )


def _raise(what: str, code: ErrorCode) -> None:
    if code != ErrorCode.none:
        raise _error(what, code)


def _error(what: str, code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"{what}: {code.name.upper()}")
