"""OffsetCommit and OffsetFetch: a group's committed offsets, for its members and for other clients.

A committed offset is the next offset to read (SPEC 7). The coordinator accepts a commit with generation -1 and without
member id while the group has no members.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.clients.arguments import PartitionT, by_partition
from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import find_coordinator
from odradek.clients.offsets import by_topic
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional
from odradek.wire.client_connection import ClientConnection

NO_GENERATION: Final = -1
_TOPIC_IDS_FROM: Final = 10
"""First version of OffsetCommit and OffsetFetch with topic ids (KIP-848); this module uses earlier ones."""
_MANY_GROUPS_FROM: Final = 8
"""First version of OffsetFetch for several groups (KIP-709)."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset (the next to read), its metadata, and the previous record's leader epoch (-1: unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The member that commits; the default commits without membership."""

    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    group_id: str = ""
    """Only for offsets in transactions (`Producer.send_offsets`)."""


NO_MEMBER: Final = ConsumerGroupMetadata()


def offsets_by_partition(
    offsets: Mapping[PartitionT, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert keys to partitions and numbers to `OffsetAndMetadata`. Raises `TypeError` for other keys."""
    return {
        partition: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
        for partition, each in by_partition(offsets).items()
    }


async def fetch_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a group's committed offsets of `partitions` (None: all), without partitions that have none."""
    wanted = None if partitions is None else list(partitions)

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        connection = await cluster.connections.to_broker(await find_coordinator(cluster, group_id))
        return await fetch_once(connection, group_id, wanted)

    return await retrying(cluster, attempt, timeout_ms=timeout_ms)


async def commit_once(
    connection: ClientConnection,
    group_id: str,
    committer: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Send one OffsetCommit to the coordinator. Raises the first `KafkaError` in its response."""
    for (topic, number), code in (await commit_each(connection, group_id, committer, offsets)).items():
        _raise(f"group {group_id!r}, {topic}-{number}", code)


async def commit_each(
    connection: ClientConnection,
    group_id: str,
    committer: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, ErrorCode]:
    """Send one OffsetCommit to the coordinator; return the error code of each partition."""
    message = {
        "group_id": group_id,
        "generation_id_or_member_epoch": committer.generation_id,
        "member_id": committer.member_id,
        "group_instance_id": committer.group_instance_id,
        "retention_time": -1,
        "topics": offset_topics(offsets),
    }
    response = await connection.request(ApiKey.OFFSET_COMMIT, message, at_most=_TOPIC_IDS_FROM - 1)
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


def offset_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, Any]]:
    """Return the topics of an OffsetCommit or TxnOffsetCommit request."""
    return [
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


async def fetch_once(
    connection: ClientConnection, group_id: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Send one OffsetFetch; return the committed offsets of `partitions` (None: all). Raises the first `KafkaError`."""
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
    return _offsets(group_id, response.groups[0] if hasattr(response, "groups") else response)


async def fetch_many(
    connection: ClientConnection, group_ids: Sequence[str], *, require_stable: bool
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """Return all committed offsets, or an error, of each group with this coordinator.

    One OffsetFetch is enough, except for brokers without version 8 (KIP-709), which get one per group.
    """
    version = connection.version(ApiKey.OFFSET_FETCH, at_most=_TOPIC_IDS_FROM - 1)
    if version >= _MANY_GROUPS_FROM:
        groups = [{"group_id": group_id, "topics": None} for group_id in group_ids]
        message = {"groups": groups, "require_stable": require_stable}
        answers = (await connection.request(ApiKey.OFFSET_FETCH, message, at_most=version)).groups
        return {answer.group_id: _offsets_or_error(answer.group_id, answer) for answer in answers}
    found = {}
    for group_id in group_ids:
        message = {"group_id": group_id, "topics": None, "require_stable": require_stable}
        answer = await connection.request(ApiKey.OFFSET_FETCH, message, at_most=version)
        found[group_id] = _offsets_or_error(group_id, answer)
    return found


def _offsets_or_error(group_id: str, answer: Any) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    try:
        return _offsets(group_id, answer)
    except KafkaError as error:
        return error


def _offsets(group_id: str, answer: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets in one group's response. Raises its first `KafkaError`."""
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
        raise KafkaError(code, f"{what}: {explained(code)}")
