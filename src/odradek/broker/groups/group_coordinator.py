"""Kafka's `GroupCoordinator`: requests for consumer groups, their configuration, and their log lines (SPEC 6).

A group belongs to the partition of `__consumer_offsets` that its id hashes to; the partition's leader coordinates the
group. `broker.groups.machine` has the state machine, `broker.coordinators` the runtime.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final

from odradek.assignors import ASSIGNOR_NAMES, KAFKA_CLASSES, create_assignor
from odradek.broker.coordinators.coordinator_context import CoordinatorState
from odradek.broker.coordinators.coordinator_topic import CoordinatorTopic, CreateTopic, TopicKind
from odradek.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime, LeaderPartitions
from odradek.broker.groups.machine import (
    GroupCoordinatorMachine,
    GroupRecord,
    GroupRecordCodec,
    GroupSettings,
    RebalanceCompleted,
)
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest, MemberFenced
from odradek.broker.groups.machine.consumer.settings import ConsumerGroupSettings, ServerAssignor
from odradek.broker.groups.machine.group_coordinator_machine import OffsetSettings
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    OffsetsDeleted,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceStarted,
    Request,
)
from odradek.broker.groups.rebalance_journal import RebalanceJournal
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.turns import cooperatively, light
from odradek.config import BrokerConfig, group_config
from odradek.metadata.image import BrokerImage, MetadataDelta
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition
from odradek.model.names import OFFSETS_TOPIC
from odradek.model.texts import one_line
from odradek.runtime import Clock
from odradek.runtime.threads import Worker

_MINUTE_MS: Final = 60_000
_MAX_LOGGED_MEMBERS: Final = 10
"""Limit of member ids in a log line."""
_MAY_HAVE_NO_GROUP_ID: Final = (CommitRequest, FetchOffsetsRequest, DescribeRequest, DeleteGroupRequest)
"""Requests that Kafka accepts with an empty group id: old clients commit to that group, tools show and delete it."""
_NO_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType({})
_log = logging.getLogger("odradek.groups")


_TOPIC: Final = TopicKind(
    name=OFFSETS_TOPIC, prefix="offsets.topic", config=lambda config: {"compression.type": "producer"}
)


class GroupCoordinator:
    """The coordinators of one broker. `create_topic` returns when the topic is in the image."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        partitions: LeaderPartitions,
        journal: RebalanceJournal,
        worker: Worker,
        *,
        create_topic: CreateTopic,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._journal = journal
        self._worker = worker
        self._loading_assignors: asyncio.Future[object] | None = None
        self._topic = CoordinatorTopic(_TOPIC, metadata, create_topic)
        self._settings_of = metadata.config
        self._known_settings: dict[str, tuple[Mapping[str, str], ConsumerGroupSettings]] = {}
        """Settings by group id; the empty id is for all groups without a configuration of their own."""
        _check_assignors(metadata.config.group_consumer_assignors)
        kind = CoordinatorKind[Request, GroupRecord](
            topic=OFFSETS_TOPIC, new_machine=self._new_machine, codec=GroupRecordCodec(), on_event=self._on_event
        )
        self.runtime = CoordinatorRuntime(kind, clock, commit_timeout_ms=metadata.config.offsets_commit_timeout_ms)

    def _new_machine(self, number: int) -> GroupCoordinatorMachine:
        del number
        return GroupCoordinatorMachine(
            self._group_settings, self._offset_settings, self._consumer_settings, self._has_room_for
        )

    def _group_settings(self) -> GroupSettings:
        config = self._metadata.config
        return GroupSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            max_member_bytes=config.message_max_bytes,
            traces_rebalances=config.group_rebalance_journal_enable,
        )

    def _offset_settings(self) -> OffsetSettings:
        config = self._metadata.config
        return OffsetSettings(
            retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
            check_interval_ms=config.offsets_retention_check_interval_ms,
        )

    def _consumer_settings(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group, from a cache that a new configuration replaces."""
        config, overrides = self._metadata.config, self._metadata.image.group_configs.get(group_id, _NO_OVERRIDES)
        if self._settings_of is not config:
            self._settings_of, self._known_settings = config, {}
        key = "" if overrides is _NO_OVERRIDES else group_id
        known = self._known_settings.get(key)
        if known is None or known[0] is not overrides:
            known = self._known_settings[key] = overrides, _settings_of_group(config, group_id, overrides)
        return known[1]

    def _on_event(self, event: object) -> None:
        if isinstance(event, RebalanceCompleted):
            self._journal.write(event)
        else:
            _log_event(event)

    # -- start, stop, images -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the groups of every partition that this broker leads now or later. Does not wait for the loads."""
        self.runtime.start(self._partitions, self._metadata.image)

    def stop(self) -> None:
        """Unload all groups; waiting requests get NOT_COORDINATOR."""
        self.runtime.stop()

    def kill(self) -> None:
        """Stop without responses, as if the process were killed."""
        self.runtime.kill()

    def image_changed(self, delta: MetadataDelta) -> None:
        """Pass changes of topics and brokers to the state machines."""
        self.runtime.on_image(delta.old, delta.new)

    def marker_appended(
        self, topic_partition: TopicPartition, producer_id: int, end_offset: int, *, is_commit: bool
    ) -> None:
        """Commit or drop the offsets of a transaction whose marker was appended; ignores other topics."""
        self.runtime.marker_appended(topic_partition, producer_id, end_offset, committed=is_commit)

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, group_id: str, request: Request) -> "asyncio.Future[Any]":
        """Handle a request of `odradek.broker.groups.machine.messages`, and return a future of its reply.

        The future fails with `KafkaError`: INVALID_GROUP_ID for an empty id where Kafka refuses it, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, or an error of the request.
        """
        if not group_id and not isinstance(request, _MAY_HAVE_NO_GROUP_ID):
            return _failed(KafkaError(ErrorCode.invalid_group_id))
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            if self._loading_assignors is None:
                names = self._metadata.config.group_consumer_assignors
                self._loading_assignors = self._worker.submit(partial(_server_assignors, names))
            if not self._loading_assignors.done():
                return asyncio.ensure_future(self._submit_after(self._loading_assignors, group_id, request))
        return self.runtime.submit(group_id, request)

    async def _submit_after(self, loading: "asyncio.Future[object]", group_id: str, request: Request) -> object:
        """Submit a first heartbeat when the assignors are imported: with numpy, that takes 0.2 s."""
        await asyncio.wait((loading,))
        return await self.runtime.submit(group_id, request)

    async def submit_all(self, requests: Iterable[tuple[str, Request | KafkaError]]) -> list[Any]:
        """Handle `(group id, request)` pairs concurrently, and return their replies or exceptions, in order.

        A `KafkaError` in place of a request is returned as its reply.
        """
        replies: list[asyncio.Future[Any] | KafkaError] = []
        results: list[Any] = []
        try:
            async for group_id, request in cooperatively(requests):
                replies.append(request if isinstance(request, KafkaError) else self.submit(group_id, request))
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

    def machine(self, group_id: str) -> GroupCoordinatorMachine | None:
        """Return the state machine for a group; None unless this broker coordinates the group and has loaded it."""
        context = self.runtime.context(group_id)
        if context is None or context.state is not CoordinatorState.ACTIVE:
            return None
        assert isinstance(context.machine, GroupCoordinatorMachine)
        return context.machine

    def _has_room_for(self, size_bytes: int) -> bool:
        """Return whether all groups and `size_bytes` more fit into `queued.max.request.bytes` (negative: no limit)."""
        limit_bytes = self._metadata.config.queued_max_request_bytes
        return limit_bytes < 0 or size_bytes + self.runtime.size_bytes <= limit_bytes

    def machines(self, *, only_loaded: bool = False) -> Iterator[GroupCoordinatorMachine]:
        """Yield the state machines of all loaded partitions.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while a partition loads, unless `only_loaded`.
        """
        for context in self.runtime.contexts(only_active=only_loaded):
            assert isinstance(context.machine, GroupCoordinatorMachine)
            yield context.machine

    async def find_coordinator(self, group_id: str) -> BrokerImage:
        return await self._topic.find_coordinator(group_id)

    async def offsets_partition(self, group_id: str) -> TopicPartition:
        return await self._topic.partition(group_id)


def _check_assignors(names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if there is no assignor or an unknown one. Built-in ones are not imported yet."""
    try:
        for name in names:
            if name not in ASSIGNOR_NAMES and name not in KAFKA_CLASSES:
                create_assignor(name)
    except ValueError as error:
        raise ConfigurationError(f"group.consumer.assignors: {error}") from error
    if not names:
        raise ConfigurationError("group.consumer.assignors is empty; its default is uniform,range")


@lru_cache(maxsize=16)
def _server_assignors(names: tuple[str, ...]) -> Mapping[str, ServerAssignor]:
    """Return the assignors of `group.consumer.assignors`, by their protocol names."""
    return {each.name: each for each in map(create_assignor, names)}


def _settings_of_group(config: BrokerConfig, group_id: str, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
    try:
        own = group_config(config, overrides)
    except ConfigurationError as error:
        _log.error("Ignoring the configuration of group %s: %s", printable(group_id), error)
        own = group_config(config, {})
    return ConsumerGroupSettings(
        assignors=_server_assignors(config.group_consumer_assignors),
        session_timeout_ms=own.consumer_session_timeout_ms,
        heartbeat_interval_ms=own.consumer_heartbeat_interval_ms,
        max_size=config.group_consumer_max_size,
        assignment_interval_ms=own.consumer_assignment_interval_ms,
        migration_policy=config.group_consumer_migration_policy,
        traces_rebalances=config.group_rebalance_journal_enable,
    )


def _failed(error: KafkaError) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _log_event(event: object) -> None:
    if isinstance(event, RebalanceStarted):
        text = printable(f"{event.group_id} with generation {event.generation}: {event.reason}")
        _log.info("Preparing to rebalance group %s", text)
    elif isinstance(event, PendingMembersOverdue):
        _log.info(
            "Group %s: the rebalance continues without %d pending members, which did not join with their ids: %s",
            printable(event.group_id), len(event.member_ids), _first(event.member_ids),
        )  # fmt: skip
    elif isinstance(event, PendingMemberExpired):
        _log.info(
            "Pending member %s in group %s has been removed after session timeout expiration: "
            "the client was given this id and never joined with it",
            printable(event.member_id), printable(event.group_id),
        )  # fmt: skip
    elif isinstance(event, MemberFenced):
        _log.info(
            "Member %s was removed from group %s: %s",
            printable(event.member_id), printable(event.group_id), event.reason,
        )  # fmt: skip
    elif isinstance(event, OffsetsDeleted):
        also = " and the group" if event.with_group else ""
        _log.info("Deleted %d offsets%s: group %s", event.count, also, printable(event.group_id))


def _first(member_ids: Sequence[str]) -> str:
    return printable(", ".join(member_ids[:_MAX_LOGGED_MEMBERS]))


def printable(text: str) -> str:
    """Return up to 1,000 characters of a client's text for the log, on one line."""
    return one_line(text[:1000])
