"""Kafka's `CoordinatorRuntime`: a `CoordinatorContext` for each partition of one internal topic that this broker leads.

A `CoordinatorKind` gives the topic, the state machine and the record codec.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from odradek.broker.coordinators.coordinator_context import CoordinatorContext, CoordinatorState, SharedTurn
from odradek.broker.coordinators.machine import Machine, RecordCodec
from odradek.broker.replication.partition import Partition
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.runtime import Clock
from odradek.runtime.rate_limited_log import RateLimitedLog

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


class CoordinatorKind(Struct, Generic[RequestT, RecordT], frozen=True, kw_only=True):
    """A kind of coordinator, such as the group coordinator."""

    topic: str
    new_machine: Callable[[int], Machine[RequestT, RecordT]]
    """Creates the state machine of a partition, from the partition's number."""
    codec: RecordCodec[RecordT]
    on_event: Callable[[object], None] = lambda _: None
    """Called with the `events` of results, for logs, metrics and journals."""


class LeaderPartitions(Protocol):
    """The partitions that this broker leads."""

    def on_leadership(self, callback: Callable[[TopicPartition, Partition | None], None]) -> None:
        """Call `callback` for every partition that this broker leads now or later; with None when it resigns."""


class CoordinatorRuntime(Generic[RequestT, RecordT]):
    """The contexts of one kind of coordinator."""

    def __init__(self, kind: CoordinatorKind[RequestT, RecordT], clock: Clock, *, commit_timeout_ms: int) -> None:
        self._kind = kind
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._contexts: dict[int, CoordinatorContext[RequestT, RecordT]] = {}
        self._partition_count = 1
        self._image = ClusterImage()
        self._has_stopped = False
        self._refusal_log = RateLimitedLog(logging.getLogger("odradek.coordinators"))
        self._shared_turn = SharedTurn()

    def start(self, partitions: LeaderPartitions, image: ClusterImage) -> None:
        """Load a context for every partition of the topic that this broker leads now or later."""
        self.on_image(ClusterImage(), image)
        partitions.on_leadership(self._on_leadership)

    def stop(self) -> None:
        """Unload all contexts and load no others; waiting requests get NOT_COORDINATOR."""
        self._has_stopped = True
        for number in tuple(self._contexts):
            self._contexts.pop(number).unload()

    def kill(self) -> None:
        """Stop without responses, as if the process were killed."""
        self._has_stopped = True
        for context in self._contexts.values():
            context.kill()
        self._contexts.clear()

    def _on_leadership(self, topic_partition: TopicPartition, partition: Partition | None) -> None:
        topic, number = topic_partition
        if topic != self._kind.topic:
            return
        before = self._contexts.pop(number, None)
        if before is not None:
            before.unload()
        if partition is not None and not self._has_stopped:
            context = self._contexts[number] = CoordinatorContext(
                partition,
                new_machine=lambda: self._kind.new_machine(number),
                codec=self._kind.codec,
                clock=self._clock,
                commit_timeout_ms=self._commit_timeout_ms,
                image=lambda: self._image,
                refusal_log=self._refusal_log,
                shared_turn=self._shared_turn,
                on_event=self._kind.on_event,
            )
            context.start()

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Pass changes of topics and brokers to every state machine."""
        self._image = new
        topic = new.topics.get(self._kind.topic)
        if topic is not None:
            self._partition_count = max(len(topic.partitions), 1)
        for context in tuple(self._contexts.values()):
            context.on_image(old, new)

    def submit(self, key: str, request: RequestT) -> "asyncio.Future[object]":
        """Pass a request to the coordinator of `key`, and return a future of its reply (`CoordinatorContext.submit`).

        The future fails with `KafkaError` NOT_COORDINATOR if this broker does not coordinate `key`.
        """
        context = self.context(key)
        if context is None:
            future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            future.set_exception(KafkaError(ErrorCode.not_coordinator))
            return future
        return context.submit(key, request)

    def marker_appended(
        self, topic_partition: TopicPartition, producer_id: int, end_offset: int, *, committed: bool
    ) -> None:
        """Apply a transaction marker that was appended before `end_offset`; ignores other topics."""
        topic, number = topic_partition
        context = self._contexts.get(number) if topic == self._kind.topic else None
        if context is not None:
            context.marker_appended(producer_id, end_offset, committed=committed)

    def context(self, key: str) -> CoordinatorContext[RequestT, RecordT] | None:
        """Return the context of a key; None unless this broker is its coordinator."""
        return self._contexts.get(coordinator_partition(key, self._partition_count))

    def contexts(self, *, only_active: bool = False) -> Iterator[CoordinatorContext[RequestT, RecordT]]:
        """Return the active contexts.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while a context loads, unless `only_active`.
        """
        contexts = tuple(self._contexts.values())
        if not only_active and any(context.state is CoordinatorState.LOADING for context in contexts):
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return (context for context in contexts if context.state is CoordinatorState.ACTIVE)

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of the clients' state in all state machines, in bytes."""
        return sum(context.machine.size_bytes for context in self._contexts.values())
