"""What the driver asks a cluster: which partitions there are, and where they begin and end. Blocking, for Spark."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import list_offsets
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import system_runtime
from odradek.spark.options import Assign, Strategy, Subscribe
from odradek.spark.settings import ScanSettings

T = TypeVar("T")


class Lookup(Protocol):
    """The questions; tests answer them from a dict."""

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """The partitions that `strategy` means and that exist now, sorted."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp in ms, -1 if none; -2 asks for the log's start, -1 for its end."""

    def close(self) -> None:
        """Give the connections back."""


class ClusterLookup:
    """A cluster that is asked from a plain thread, on an event loop of its own. Opened when first asked."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cluster: Cluster | None = None

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        """See `Lookup`. Raises `KafkaError` for a topic that exists and can't be read, `UnavailableError`."""
        return self._run(self._partitions(strategy))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `Lookup`. Raises `KafkaError` for a partition that does not exist, `UnavailableError`."""
        return self._run(self._offsets(wanted)) if wanted else {}

    def close(self) -> None:
        """See `Lookup`."""
        if self._loop is not None:
            if self._cluster is not None:
                self._loop.run_until_complete(self._cluster.close())
            self._loop.close()
        self._loop = self._cluster = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    async def _open(self) -> Cluster:
        if self._cluster is None:
            cluster = Cluster(self._settings, system_runtime())
            try:
                await cluster.start()
            except BaseException:
                await cluster.close()
                raise
            self._cluster = cluster
        return self._cluster

    async def _partitions(self, strategy: Strategy) -> list[TopicPartition]:
        cluster = await self._open()
        if isinstance(strategy, Subscribe):
            names: Sequence[str] | None = strategy.topics
        elif isinstance(strategy, Assign):
            names = sorted({partition.topic for partition in strategy.partitions})
        else:
            names = None
        cluster.set_topics(names)
        # Asked anew every time: a stream wants to know of topics and partitions that came or went since.
        await cluster.refresh()
        found = []
        for topic in cluster.metadata.topics.values():
            if topic.error_code == ErrorCode.unknown_topic_or_partition:
                continue
            if names is None and (topic.is_internal or not strategy.matches(topic.name)):  # type: ignore[union-attr]
                continue
            if topic.error_code == ErrorCode.leader_not_available and not topic.numbers:
                # It is being created: its partitions come with the next trigger.
                continue
            if topic.error_code not in {ErrorCode.none, ErrorCode.leader_not_available}:
                raise KafkaError(topic.error_code, f"topic {topic.name!r}: {topic.error_code.name.upper()}")
            found += [TopicPartition(topic.name, number) for number in topic.numbers]
        if isinstance(strategy, Assign):
            found = [partition for partition in found if partition in strategy.partitions]
        return sorted(found)

    async def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        cluster = await self._open()
        answers = await list_offsets(
            cluster,
            wanted,
            isolation_level=self._settings.isolation_level,
            timeout_ms=self._settings.default_api_timeout_ms,
        )
        return {partition: answer.offset for partition, answer in answers.items()}
