"""Kafka's `CoordinatorRuntime`: a `CoordinatorContext` for each partition of one internal topic that this broker leads.

A `CoordinatorKind` gives the topic, which is created when a coordinator is first looked for, the state machine and the
record codec.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from odradek.broker.coordinators.coordinator_context import CoordinatorContext, CoordinatorState, SharedTurn
from odradek.broker.coordinators.machine import Machine, RecordCodec
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.turns import HEAVY, cooperatively, light
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import BrokerImage, ClusterImage, MetadataDelta
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.model.java_hash import coordinator_partition
from odradek.runtime import Clock
from odradek.runtime.rate_limited_log import RateLimitedLog

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
MachineT = TypeVar("MachineT", bound=Machine[Any, Any])
_log = logging.getLogger("odradek.coordinators")
CreateTopic = Callable[[NewTopic], Awaitable[None]]
"""Creates a topic, and returns when it is in the image."""


class TopicKind(Struct, frozen=True, kw_only=True):
    """An internal topic: its name, and the configuration that it is created with."""

    name: str
    prefix: str
    """The prefix of its configuration keys, such as `offsets.topic`."""
    config: Callable[[BrokerConfig], Mapping[str, str]]

    def new_topic(self, config: BrokerConfig, broker_count: int) -> NewTopic:
        """Return the topic to create: `PREFIX.num.partitions` with `PREFIX.replication.factor` replicas.

        If that key is not set, there are no more replicas than brokers.
        """
        return NewTopic(
            name=self.name,
            num_partitions=_number(config, f"{self.prefix}.num.partitions"),
            replication_factor=replication_factor(config, f"{self.prefix}.replication.factor", broker_count),
            config={
                "cleanup.policy": "compact",
                "segment.bytes": str(_number(config, f"{self.prefix}.segment.bytes")),
                **self.config(config),
            },
        )


def replication_factor(config: BrokerConfig, key: str, broker_count: int) -> int:
    """Return the value of `key`, and at most `broker_count` if no layer sets it: one broker has to suffice."""
    factor = _number(config, key)
    return factor if config.is_explicit(key) else max(min(factor, broker_count), 1)


def _number(config: BrokerConfig, key: str) -> int:
    value = config.get(key)
    assert isinstance(value, int)
    return value


def partition_of(image: ClusterImage, topic: str, key: str) -> TopicPartition:
    """Return the partition of `topic` that `key` hashes to; partition 0 if there is no such topic."""
    known = image.topics.get(topic)
    return TopicPartition(topic, coordinator_partition(key, 1 if known is None else max(len(known.partitions), 1)))


class CoordinatorKind(Struct, Generic[RequestT, RecordT, MachineT], frozen=True, kw_only=True):
    """A kind of coordinator, such as the group coordinator."""

    topic: TopicKind
    new_machine: Callable[[Callable[[], int]], MachineT]
    """Creates the state machine of a partition. The argument returns the bytes of memory of all machines."""
    codec: RecordCodec[RecordT]
    commit_timeout_ms: int
    """Limit of the time that a request waits until its record is committed."""
    on_event: Callable[[object], None] = lambda _: None
    """Called with the `events` of results, for logs, metrics and journals."""
    error_without_key: ErrorCode = ErrorCode.invalid_request
    needs_no_key: tuple[type, ...] = ()
    """The requests that an empty key is accepted for."""
    awaits: Callable[[RequestT], "asyncio.Future[object] | None"] = lambda _: None
    """Returns what a request has to wait for before it is handled."""


class CoordinatorRuntime(Generic[RequestT, RecordT, MachineT]):
    """The coordinators of one kind on this broker."""

    def __init__(
        self,
        kind: CoordinatorKind[RequestT, RecordT, MachineT],
        metadata: MetadataCache,
        clock: Clock,
        partitions: ReplicaManager,
        *,
        create_topic: CreateTopic,
    ) -> None:
        self._kind = kind
        self._topic: Final = kind.topic.name
        self._metadata = metadata
        self._clock = clock
        self._partitions = partitions
        self._create_topic = create_topic
        self._contexts: dict[int, CoordinatorContext[RequestT, RecordT]] = {}
        self._has_stopped = False
        self._refusal_log = RateLimitedLog(_log)
        self._failures = RateLimitedLog(_log)
        self._shared_turn = SharedTurn()

    def start(self) -> None:
        """Load a context for every partition of the topic that this broker leads now or later. Does not wait for it."""
        self._partitions.on_leadership(self._on_leadership)

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
        if topic != self._topic:
            return
        before = self._contexts.pop(number, None)
        if before is not None:
            before.unload()
        if partition is not None and not self._has_stopped:
            context = self._contexts[number] = CoordinatorContext(
                partition,
                new_machine=lambda: self._kind.new_machine(lambda: self.size_bytes),
                codec=self._kind.codec,
                clock=self._clock,
                commit_timeout_ms=self._kind.commit_timeout_ms,
                image=lambda: self._metadata.image,
                refusal_log=self._refusal_log,
                shared_turn=self._shared_turn,
                on_event=self._kind.on_event,
            )
            context.start()

    def image_changed(self, delta: MetadataDelta) -> None:
        """Pass changes of topics and brokers to every state machine."""
        for context in tuple(self._contexts.values()):
            context.on_image(delta.old)

    def marker_appended(
        self, topic_partition: TopicPartition, producer_id: int, end_offset: int, *, is_commit: bool
    ) -> None:
        """Apply a transaction marker that was appended before `end_offset`; ignores other topics."""
        topic, number = topic_partition
        context = self._contexts.get(number) if topic == self._topic else None
        if context is not None:
            context.marker_appended(producer_id, end_offset, committed=is_commit)

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, key: str, request: RequestT) -> "asyncio.Future[Any]":
        """Pass a request to the coordinator of `key`, and return a future of its reply (`CoordinatorContext.submit`).

        The future fails with `KafkaError`, also `error_without_key`, and NOT_COORDINATOR if another broker coordinates
        `key`.
        """
        kind = self._kind
        if not key and not isinstance(request, kind.needs_no_key):
            return _failed(kind.error_without_key)
        awaited = kind.awaits(request)
        if awaited is not None and not awaited.done():
            return asyncio.ensure_future(self._submit_after(awaited, key, request))
        context = self.context(key)
        return _failed(ErrorCode.not_coordinator) if context is None else context.submit(key, request)

    async def _submit_after(self, awaited: "asyncio.Future[object]", key: str, request: RequestT) -> Any:
        await asyncio.wait((awaited,))
        return await self.submit(key, request)

    async def submit_all(
        self, requests: Iterable[tuple[str, RequestT | KafkaError]], weigh: Callable[[str], int] = lambda _: HEAVY
    ) -> list[Any]:
        """Handle `(key, request)` pairs concurrently, and return their replies or exceptions, in order.

        A `KafkaError` in place of a request is returned as its reply. `weigh` returns the weight of a key's request.
        """
        replies: list[asyncio.Future[Any] | KafkaError] = []
        results: list[Any] = []
        try:
            async for key, request in cooperatively(requests, lambda each: weigh(each[0])):
                replies.append(request if isinstance(request, KafkaError) else self.submit(key, request))
            async for reply in cooperatively(replies, light):
                try:
                    results.append(reply if isinstance(reply, KafkaError) else await reply)
                except KafkaError as error:
                    results.append(error.with_traceback(None))
        finally:
            for unread in replies[len(results) :]:
                if isinstance(unread, asyncio.Future) and unread.done() and not unread.cancelled():
                    unread.exception()  # else asyncio logs it
        return results

    # -- state ---------------------------------------------------------------------------------------------------------

    def context(self, key: str) -> CoordinatorContext[RequestT, RecordT] | None:
        """Return the context of a key; None unless this broker is its coordinator."""
        return self._contexts.get(partition_of(self._metadata.image, self._topic, key).partition)

    def contexts(self, *, only_active: bool = False) -> Iterator[CoordinatorContext[RequestT, RecordT]]:
        """Return the active contexts.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while a context loads, unless `only_active`.
        """
        contexts = tuple(self._contexts.values())
        if not only_active and any(context.state is CoordinatorState.LOADING for context in contexts):
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return (context for context in contexts if context.state is CoordinatorState.ACTIVE)

    def machine(self, key: str) -> MachineT | None:
        """Return the state machine of a key; None unless this broker coordinates the key and has loaded it."""
        context = self.context(key)
        if context is None or context.state is not CoordinatorState.ACTIVE:
            return None
        return cast("MachineT", context.machine)

    def machines(self, *, only_active: bool = False) -> Iterator[MachineT]:
        """Yield the state machines of `contexts`, which may raise `KafkaError`."""
        for context in self.contexts(only_active=only_active):
            yield cast("MachineT", context.machine)

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of the clients' state in all state machines, in bytes."""
        return sum(context.machine.size_bytes for context in self._contexts.values())

    # -- the topic -----------------------------------------------------------------------------------------------------

    async def find_coordinator(self, key: str) -> BrokerImage:
        """Return the coordinator of a key; create the topic if it does not exist.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE if the topic cannot be created, or its partition has no leader.
        """
        topic_partition, image = await self.partition(key), self._metadata.image
        partition = image.partition(topic_partition)
        leader = None if partition is None else image.brokers.get(partition.leader)
        if leader is None:
            text = f"{topic_partition}, the partition for {key!r}, has no leader"
            raise KafkaError(ErrorCode.coordinator_not_available, text)
        return leader

    async def partition(self, key: str) -> TopicPartition:
        """Return the partition of a key; create the topic if it does not exist.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE if the topic cannot be created.
        """
        if self._topic not in self._metadata.image.topics:
            await self._create()
        return partition_of(self._metadata.image, self._topic, key)

    async def _create(self) -> None:
        kind, config, broker_count = self._kind.topic, self._metadata.config, len(self._metadata.image.brokers)
        topic = kind.new_topic(config, broker_count)
        min_in_sync = int(topic.config.get("min.insync.replicas") or config.min_insync_replicas)
        if topic.replication_factor <= min_in_sync and broker_count > 1:
            _log.warning(
                "Creating %s with %s.replication.factor=%d and min.insync.replicas=%d: its coordinators are "
                "unavailable while a broker is down; choose a replication factor above min.insync.replicas",
                kind.name, kind.prefix, topic.replication_factor, min_in_sync,
            )  # fmt: skip
        try:
            await self._create_topic(topic)
        except (KafkaError, UnavailableError) as error:
            text = "Failed to create %s, so that clients find no coordinator: %s (its keys begin with %s)"
            self._failures.log("creation", logging.WARNING, text, kind.name, error, kind.prefix)
            raise KafkaError(ErrorCode.coordinator_not_available, f"{kind.name}: {error}") from error


def _failed(error: ErrorCode) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(KafkaError(error))
    return future
