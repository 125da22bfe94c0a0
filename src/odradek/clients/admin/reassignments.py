"""Starts and lists partition reassignments (KIP-455) and elects leaders (KIP-460), by requests to the controller."""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
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


class ElectionType(IntEnum):
    """The type of an election, by Kafka's numbers.

    PREFERRED elects the first replica. UNCLEAN elects any live replica of a partition without a leader; records that
    this replica lacks are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


class PartitionReassignment(Struct, frozen=True, kw_only=True):
    """A reassignment in progress: `replicas` include those being added and those being removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)


async def alter_partition_reassignments(
    cluster: Cluster,
    targets: Mapping[PartitionT, Collection[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> None:
    """Start to reassign partitions to `targets`: replicas, the preferred leader first; None cancels a reassignment.

    Old replicas are removed when the new ones are in sync; `list_partition_reassignments` shows the progress.
    Raises `RefusedPartitionsError` for refused partitions; the others are started.
    """
    replicas = by_partition(targets)
    message = {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "replicas": None if (target := replicas[each]) is None else list(target),
                    }
                    for each in some
                ],
            }
            for name, some in by_topic(replicas)
        ],
        "timeout": cluster.timeout_ms,
        "allow_replication_factor_change": allow_replication_factor_change,
    }

    async def attempt() -> None:
        connection = await cluster.controller()
        response = await connection.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, message)
        _raise(response)
        errors = {
            TopicPartition(topic.name, each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
            if each.error_code != ErrorCode.none
        }
        if errors:
            raise RefusedPartitionsError({key: _error(key, each) for key, each in errors.items()})

    await retrying(cluster, attempt)


async def list_partition_reassignments(
    cluster: Cluster, partitions: Iterable[Partition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments in progress, of `partitions` or of all, sorted by partition."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": name, "partition_indexes": [each.partition for each in some]}
            for name, some in by_topic(partitions_of(partitions))
        ]
    message = {"topics": topics, "timeout": cluster.timeout_ms}

    async def attempt() -> dict[TopicPartition, PartitionReassignment]:
        connection = await cluster.controller()
        response = await connection.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, message)
        _raise(response)
        found = {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                replicas=tuple(each.replicas),
                adding_replicas=tuple(each.adding_replicas),
                removing_replicas=tuple(each.removing_replicas),
            )
            for topic in response.topics
            for each in topic.partitions
        }
        return dict(sorted(found.items()))

    return await retrying(cluster, attempt)


async def elect_leaders(
    cluster: Cluster, election_type: ElectionType, partitions: Iterable[Partition] | None = None
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders of `partitions`, or of all that need an election; return None or an error for each.

    ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE and others are results.
    Raises `KafkaError` for an error of the whole request.
    """
    wanted = None
    if partitions is not None:
        chosen = by_topic(partitions_of(partitions))
        wanted = [{"topic": name, "partitions": [each.partition for each in some]} for name, some in chosen]
    message = {"election_type": int(election_type), "topic_partitions": wanted, "timeout": cluster.timeout_ms}

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        connection = await cluster.controller()
        response = await connection.request(ApiKey.ELECT_LEADERS, message)
        _raise(response)
        results: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                key = TopicPartition(topic.topic, each.partition_id)
                results[key] = _error(key, each) if each.error_code != ErrorCode.none else None
                if each.error_code == ErrorCode.not_controller:
                    # Versions without a top-level error code return it for each partition.
                    raise KafkaError(ErrorCode.not_controller)
        return dict(sorted(results.items()))

    return await retrying(cluster, attempt)


def _raise(response: Any) -> None:
    code = optional(response, "error_code", ErrorCode.none)
    if code != ErrorCode.none:
        raise KafkaError(code, optional(response, "error_message", None))


def _error(key: TopicPartition, answer: Any) -> KafkaError:
    name = explained(answer.error_code)
    where = f"{key.topic}-{key.partition}"
    reason = answer.error_message or name
    return KafkaError(answer.error_code, reason if where in reason else f"{where}: {reason}")
