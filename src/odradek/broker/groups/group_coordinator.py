"""The kind of coordinator that Kafka's `GroupCoordinator` is: its configuration and its log lines (SPEC 6).

A group belongs to the partition of `__consumer_offsets` that its id hashes to; the partition's leader coordinates the
group. `broker.groups.machine` has the state machine, `broker.coordinators` the runtime.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, TypeAlias

from odradek.assignors import ASSIGNOR_NAMES, KAFKA_CLASSES, create_assignor
from odradek.broker.coordinators.runtime import (
    CoordinatorKind,
    CoordinatorRuntime,
    CreateTopic,
    TopicKind,
)
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest, MemberFenced
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings, ServerAssignor
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
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
from odradek.broker.groups.machine.rebalance_trace import RebalanceCompleted
from odradek.broker.groups.machine.records import GroupRecord, GroupRecordCodec
from odradek.broker.groups.rebalance_journal import RebalanceJournal
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.config.broker import BrokerConfig
from odradek.config.group import group_config
from odradek.model import ConfigurationError, ErrorCode
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


GroupCoordinator: TypeAlias = CoordinatorRuntime[Request, GroupRecord, GroupCoordinatorMachine]
"""The group coordinators of one broker."""


def group_coordinator(
    metadata: MetadataCache,
    clock: Clock,
    partitions: ReplicaManager,
    journal: RebalanceJournal,
    worker: Worker,
    *,
    create_topic: CreateTopic,
) -> GroupCoordinator:
    """Return the coordinators of one broker. `create_topic` returns when the topic is in the image."""
    _check_assignors(metadata.config.group_consumer_assignors)
    settings = _Settings(metadata, worker)

    def new_machine(size_bytes: Callable[[], int]) -> GroupCoordinatorMachine:
        def has_room_for(more_bytes: int) -> bool:
            limit_bytes = metadata.config.queued_max_request_bytes
            return limit_bytes < 0 or more_bytes + size_bytes() <= limit_bytes

        return GroupCoordinatorMachine(
            settings.of_groups, settings.of_offsets, settings.of_consumer_group, has_room_for
        )

    def on_event(event: object) -> None:
        if isinstance(event, RebalanceCompleted):
            journal.write(event)
        else:
            _log_event(event)

    kind = CoordinatorKind[Request, GroupRecord, GroupCoordinatorMachine](
        topic=_TOPIC,
        new_machine=new_machine,
        codec=GroupRecordCodec(),
        commit_timeout_ms=metadata.config.offsets_commit_timeout_ms,
        on_event=on_event,
        error_without_key=ErrorCode.invalid_group_id,
        needs_no_key=_MAY_HAVE_NO_GROUP_ID,
        awaits=settings.assignors_for,
    )
    return CoordinatorRuntime(kind, metadata, clock, partitions, create_topic=create_topic)


class _Settings:
    """The settings of groups, by the broker's current configuration and those of groups."""

    def __init__(self, metadata: MetadataCache, worker: Worker) -> None:
        self._metadata = metadata
        self._worker = worker
        self._loading_assignors: asyncio.Future[object] | None = None
        self._settings_of = metadata.config
        self._known_settings: dict[str, tuple[Mapping[str, str], ConsumerGroupSettings]] = {}
        """Settings by group id; the empty id is for all groups without a configuration of their own."""

    def assignors_for(self, request: Request) -> "asyncio.Future[object] | None":
        """Import the assignors beside the event loop at the first heartbeat: with numpy, that takes 0.2 s."""
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return None
        if self._loading_assignors is None:
            names = self._metadata.config.group_consumer_assignors
            self._loading_assignors = self._worker.submit(partial(_server_assignors, names))
        return self._loading_assignors

    def of_groups(self) -> GroupSettings:
        config = self._metadata.config
        return GroupSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            max_member_bytes=config.message_max_bytes,
            traces_rebalances=config.group_rebalance_journal_enable,
        )

    def of_offsets(self) -> OffsetSettings:
        config = self._metadata.config
        return OffsetSettings(
            retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
            check_interval_ms=config.offsets_retention_check_interval_ms,
        )

    def of_consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group, from a cache that a new configuration replaces."""
        config, overrides = self._metadata.config, self._metadata.image.group_configs.get(group_id, _NO_OVERRIDES)
        if self._settings_of is not config:
            self._settings_of, self._known_settings = config, {}
        key = "" if overrides is _NO_OVERRIDES else group_id
        known = self._known_settings.get(key)
        if known is None or known[0] is not overrides:
            known = self._known_settings[key] = overrides, _settings_of_group(config, group_id, overrides)
        return known[1]


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
