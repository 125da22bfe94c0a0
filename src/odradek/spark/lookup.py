"""What the driver asks a cluster: which partitions there are, and where they begin and end. Blocking, for Spark."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import list_offsets
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.spark.bridge import Bridge
from odradek.spark.options import Assign, Strategy, Subscribe, SubscribePattern
from odradek.spark.settings import ScanSettings

_NOT_YET: Final = {ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available}
"""A topic that is not there, or is being created, has no partitions for now; they come with a later trigger."""


class Lookup(Protocol):
    """The questions; tests answer them from a dict."""

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """The partitions that `strategy` means and that exist now, sorted."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp in ms, -1 if none; -2 asks for the log's start, -1 for its end."""

    def close(self) -> None:
        """Give the connections back."""


class ClusterLookup:
    """A cluster that is asked from a plain thread."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._bridge = Bridge(settings)

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """See `Lookup`. Raises `KafkaError` for a topic that exists and can't be read, `UnavailableError`."""
        return self._bridge.run(lambda cluster: _partitions(cluster, strategy))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `Lookup`. Raises `KafkaError` for a partition that does not exist, `UnavailableError`."""
        return self._bridge.run(lambda cluster: self._offsets(cluster, wanted)) if wanted else {}

    def close(self) -> None:
        """See `Lookup`."""
        self._bridge.close()

    async def _offsets(self, cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        answers = await list_offsets(
            cluster,
            wanted,
            isolation_level=self._settings.isolation_level,
            timeout_ms=self._settings.default_api_timeout_ms,
        )
        return {partition: answer.offset for partition, answer in answers.items()}


async def _partitions(cluster: Cluster, strategy: Strategy) -> list[TopicPartition]:
    names: Sequence[str] | None = None
    if isinstance(strategy, Subscribe):
        names = strategy.topics
    elif isinstance(strategy, Assign):
        names = sorted({partition.topic for partition in strategy.partitions})
    cluster.set_topics(names)
    # Asked anew every time: a stream wants to know of topics and partitions that came or went since.
    await cluster.refresh(timeout_ms=cluster.settings.default_api_timeout_ms)
    found = []
    for topic in cluster.metadata.topics.values():
        if isinstance(strategy, SubscribePattern) and (topic.is_internal or not strategy.matches(topic.name)):
            continue
        if topic.error_code not in _NOT_YET:
            raise KafkaError(topic.error_code, f"topic {topic.name!r}: {topic.error_code.name.upper()}")
        found += [TopicPartition(topic.name, number) for number in topic.numbers]
    if isinstance(strategy, Assign):
        found = [partition for partition in found if partition in strategy.partitions]
    return sorted(found)
