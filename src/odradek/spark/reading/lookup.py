"""The driver's requests to a Kafka cluster: existing partitions, their offsets, and offset commits. Blocking."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import find_coordinator
from odradek.clients.group_offsets import NO_MEMBER, OffsetAndMetadata, commit_once
from odradek.clients.offsets import list_offsets
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.spark.options import Assign, Strategy, Subscribe, SubscribePattern
from odradek.spark.reading.blocking_cluster import BlockingCluster
from odradek.spark.settings import ScanSettings

_NOT_YET: Final = {ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available}
"""Topic error codes that are not raised: a missing or new topic has no partitions yet; a later trigger finds them."""

COMMIT_TIMEOUT_MS: Final = 2_000
"""The longest time that a commit blocks a query; commits only serve people who watch the lag."""

POLL_S: Final = 0.01
"""The pause between two requests for offsets, as Spark's own `spark.sql.streaming.pollingDelay`."""


class Lookup(Protocol):
    """The requests of the driver; tests implement it with a dict."""

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """Return the existing partitions that `strategy` selects, sorted."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each timestamp (ms), -1 if none; -2 means the log start, -1 the end."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets, each the next to read, to a group without members."""

    def brokers(self) -> tuple[str, ...]:
        """Return HOST:PORT of every broker in the last metadata."""

    def topic_ids(self) -> dict[str, uuid.UUID]:
        """Return the id of every topic in the last metadata, without topics that have no id."""

    def wait(self) -> None:
        """Wait `POLL_S` for new records."""

    def close(self) -> None: ...


class ClusterLookup:
    """The `Lookup` that sends requests to a cluster; for one thread."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._cluster = BlockingCluster(settings)

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """Raise `KafkaError` for a topic that exists and cannot be read, `UnavailableError` if no broker answers."""
        return self._cluster.run(lambda cluster: _partitions(cluster, strategy))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise `KafkaError` for a partition that does not exist, `UnavailableError` if no broker answers."""
        return self._cluster.run(lambda cluster: self._offsets(cluster, wanted)) if wanted else {}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Raise `KafkaError` if the group has members, `OdradekError` after `COMMIT_TIMEOUT_MS`."""
        self._cluster.run(lambda cluster: _commit(cluster, group_id, offsets), timeout_s=COMMIT_TIMEOUT_MS / 1000)

    def brokers(self) -> tuple[str, ...]:
        return self._cluster.brokers()

    def topic_ids(self) -> dict[str, uuid.UUID]:
        return self._cluster.topic_ids()

    def wait(self) -> None:
        time.sleep(POLL_S)

    def close(self) -> None:
        self._cluster.close()

    async def _offsets(self, cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        answers = await list_offsets(cluster, wanted, isolation_level=self._settings.isolation_level)
        return {partition: answer.offset for partition, answer in answers.items()}


async def _partitions(cluster: Cluster, strategy: Strategy) -> list[TopicPartition]:
    names: Sequence[str] | None = None
    if isinstance(strategy, Subscribe):
        names = strategy.topics
    elif isinstance(strategy, Assign):
        names = sorted({partition.topic for partition in strategy.partitions})
    cluster.set_topics(names)
    # Not cached: a stream has to find topics and partitions that were created or deleted.
    await cluster.refresh(timeout_ms=cluster.timeout_ms)
    found = []
    for topic in cluster.metadata.topics.values():
        if isinstance(strategy, SubscribePattern) and (topic.is_internal or not strategy.matches(topic.name)):
            continue
        if topic.error_code not in _NOT_YET:
            raise KafkaError(topic.error_code, f"topic {topic.name!r}: {explained(topic.error_code)}")
        found += [TopicPartition(topic.name, number) for number in topic.numbers]
    if isinstance(strategy, Assign):
        found = [partition for partition in found if partition in strategy.partitions]
    return sorted(found)


async def _commit(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    committed = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}

    async def attempt() -> None:
        connection = await cluster.connections.to_broker(await find_coordinator(cluster, group_id))
        await commit_once(connection, group_id, NO_MEMBER, committed)

    await retrying(cluster, attempt, timeout_ms=COMMIT_TIMEOUT_MS)
