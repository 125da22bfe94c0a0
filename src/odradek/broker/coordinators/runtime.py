"""The coordinators of one kind on this broker: a shard for each partition of their topic that the broker leads.

A kind of coordinator is a topic, a machine and a codec. Nothing here knows what the machine does.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from odradek.broker.coordinators.shard import CoordinatorShard, ShardState
from odradek.broker.replication.partition import Partition
from odradek.coordination import Machine, RecordCodec, partition_for
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass
from odradek.runtime import Clock

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind(Generic[RequestT, RecordT]):
    """One kind of coordinator, such as that of groups."""

    topic: str
    new_machine: Callable[[int], Machine[RequestT, RecordT]]
    """Make the machine of a partition."""
    codec: RecordCodec[RecordT]
    on_event: Callable[[object], None] = lambda _: None
    """Called with what machines report, for logs, metrics and journals."""


class LeaderPartitions(Protocol):
    """The partitions that this broker leads."""

    def on_leadership(self, callback: Callable[[TopicPartition, Partition | None], None]) -> None:
        """Call back with every partition that this broker leads, now and later; with None when it no longer does."""


class CoordinatorRuntime(Generic[RequestT, RecordT]):
    """The shards of one kind of coordinator."""

    def __init__(self, kind: CoordinatorKind[RequestT, RecordT], clock: Clock, *, commit_timeout_ms: int) -> None:
        self._kind = kind
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._shards: dict[int, CoordinatorShard[RequestT, RecordT]] = {}
        self._partition_count = 1
        self._image = ClusterImage()
        self._has_stopped = False

    def start(self, partitions: LeaderPartitions, image: ClusterImage) -> None:
        """Load a shard for every partition that this broker leads, now and in future."""
        self.on_image(ClusterImage(), image)
        partitions.on_leadership(self._on_leadership)

    def stop(self) -> None:
        """Unload all shards, and load none any more; waiting requests get NOT_COORDINATOR."""
        self._has_stopped = True
        for number in tuple(self._shards):
            self._shards.pop(number).unload()

    def kill(self) -> None:
        """Drop everything without answers, as if the process were killed."""
        self._has_stopped = True
        for shard in self._shards.values():
            shard.kill()
        self._shards.clear()

    def _on_leadership(self, topic_partition: TopicPartition, partition: Partition | None) -> None:
        topic, number = topic_partition
        if topic != self._kind.topic:
            return
        before = self._shards.pop(number, None)
        if before is not None:
            before.unload()
        if partition is not None and not self._has_stopped:
            shard = self._shards[number] = CoordinatorShard(
                partition,
                new_machine=lambda: self._kind.new_machine(number),
                codec=self._kind.codec,
                clock=self._clock,
                commit_timeout_ms=self._commit_timeout_ms,
                image=lambda: self._image,
                on_event=self._kind.on_event,
            )
            shard.start()

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Have every machine decide on changes of topics and brokers."""
        self._image = new
        topic = new.topics.get(self._kind.topic)
        if topic is not None:
            self._partition_count = max(len(topic.partitions), 1)
        for shard in tuple(self._shards.values()):
            shard.on_image(old, new)

    def submit(self, key: str, request: RequestT) -> "asyncio.Future[object]":
        """Have the coordinator of `key` handle a request; the future has its reply (see `CoordinatorShard.submit`)."""
        shard = self.shard(key)
        if shard is None:
            future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            future.set_exception(KafkaError(ErrorCode.not_coordinator))
            return future
        return shard.submit(key, request)

    def marker_appended(
        self, topic_partition: TopicPartition, producer_id: int, end_offset: int, *, committed: bool
    ) -> None:
        """Apply the marker of a transaction that was appended to a partition up to `end_offset`."""
        topic, number = topic_partition
        shard = self._shards.get(number) if topic == self._kind.topic else None
        if shard is not None:
            shard.marker_appended(producer_id, end_offset, committed=committed)

    def shard(self, key: str) -> CoordinatorShard[RequestT, RecordT] | None:
        """Return the shard of a key, if this broker is its coordinator."""
        return self._shards.get(partition_for(key, self._partition_count))

    def shards(self, *, only_active: bool = False) -> Iterator[CoordinatorShard[RequestT, RecordT]]:
        """Return the active shards; one that failed to load is left out until it succeeds.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while one loads, unless `only_active`.
        """
        shards = tuple(self._shards.values())
        if not only_active and any(shard.state is ShardState.LOADING for shard in shards):
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return (shard for shard in shards if shard.state is ShardState.ACTIVE)

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory that the state of clients takes in all machines, in bytes."""
        return sum(shard.machine.size_bytes for shard in self._shards.values())
