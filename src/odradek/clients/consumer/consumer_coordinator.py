"""Sends the group requests of a consumer, computes the leader's assignment, and keeps its timers.

`MembershipManager` decides. Each of its actions becomes a request on the coordinator's own connection, and the
response is passed back to it. Rebalance callbacks wait in `MembershipManager.pending_callback` for the consumer's
poll.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription, RebalanceProtocol, create_assignor
from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.consumer.actions import (
    Action,
    FindCoordinator,
    GroupRebalanceConfig,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    PerformAssignment,
    RebalanceCallback,
    SyncGroup,
    SyncGroupResponse,
)
from odradek.clients.consumer.membership_manager import MembershipManager, MemberState
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.group_offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    commit_once,
    fetch_group_offsets,
    find_coordinator,
)
from odradek.model import ConfigurationError, ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.protocol.messages import optional
from odradek.wire.client_connection import ClientConnection

_log = logging.getLogger("odradek.clients")
_JOIN_GROUP_TIMEOUT_LAPSE_MS = 5_000
"""JoinGroup responses may take this much longer than the rebalance timeout; as in Kafka."""
_LEAVE_TIMEOUT_MS = 5_000
_FENCED_ERRORS = {ErrorCode.illegal_generation, ErrorCode.unknown_member_id}
_COORDINATOR_ERRORS = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}


class ConsumerCoordinator:
    """The group side of a consumer. `on_change` is called when a callback may be pending."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        group_id: str,
        assignors: Iterable[Assignor],
        on_change: Callable[[], None],
    ) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._settings = settings
        self._clock = cluster.runtime.clock
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._on_change = on_change
        self._topics: tuple[str, ...] = ()
        self._assignment_snapshot: dict[str, int] | None = None
        """The partition counts that the leader's assignment was computed from."""
        self._node_id: int | None = None
        self._connection: ClientConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = cluster.backoff()
        self._pause_s = 0.0
        """Delay before the coordinator is looked up: a broker that closes connections at once must not cause a busy
        loop."""
        self.member = MembershipManager(
            GroupRebalanceConfig(
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                max_poll_interval_ms=settings.max_poll_interval_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
            ),
            group_instance_id=settings.group_instance_id,
            is_cooperative=all(
                RebalanceProtocol.COOPERATIVE in each.supported_protocols for each in self._assignors.values()
            ),
        )
        cluster.on_metadata.append(self._rejoin_if_partitions_changed)

    # ---- calls of the consumer ----------------------------------------------------------------------------------

    @property
    def metadata_topics(self) -> set[str]:
        """Return the topics whose metadata is needed: those of the member and, for a leader, of the whole group."""
        return set(self._topics) | set(self._assignment_snapshot or ())

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group with these topics."""
        self._topics = tuple(sorted(set(topics)))
        self._perform(self.member.subscribe(self._topics, self._clock.monotonic()))

    def poll_started(self) -> None:
        """Stop the poll timer. Raises the error that prevents membership, if any."""
        self._perform(self.member.poll_started())
        self.raise_error()

    def raise_error(self) -> None:
        """Raise the error that prevents membership, or that of this leader's assignor, if any."""
        if self.member.error is not None:
            raise self.member.error
        if (error := self.member.take_assignment_error(self._clock.monotonic())) is not None:
            self._schedule_tick()
            raise error

    def poll_finished(self) -> None:
        """Start the poll timer."""
        self.member.poll_finished(self._clock.monotonic())
        self._schedule_tick()

    def callback_completed(self, callback: RebalanceCallback) -> None:
        """Continue after the application's callback."""
        self._perform(self.member.callback_completed(callback, self._clock.monotonic()))

    async def leave(self, reason: str) -> None:
        """Leave the group, so that no member waits for the session timeout. Errors are ignored."""
        self._topics, self._assignment_snapshot = (), None
        actions = self.member.leave(reason)
        for action in actions:
            if isinstance(action, LeaveGroup) and self._connection is not None and not self._connection.closed:
                try:
                    await self._send_leave_group(action)
                except (KafkaError, UnavailableError, TimeoutError) as error:
                    _log.debug("Failed to leave group %s: %s", self.group_id, error)
        self._schedule_tick()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit as a member, or without membership if no topic is subscribed.

        Raises `KafkaError` REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if other members may own the
        partitions by now: such a commit must not be retried.
        """
        deadline = self._clock.monotonic() + timeout_ms / 1000
        backoff = self._cluster.backoff()
        while True:
            try:
                if self._node_id is None:
                    await self._ensure_coordinator_ready()
                assert self._node_id is not None
                # The coordinator connection may be blocked by a JoinGroup for the whole rebalance.
                connection = await self._cluster.connection(self._node_id)
                await commit_once(connection, self.group_id, self._group_metadata(), offsets)
                return
            except (KafkaError, UnavailableError) as error:
                code = error.code if isinstance(error, KafkaError) else None
                if code in _FENCED_ERRORS:
                    self._perform(self.member.fenced(ErrorCode(code)))
                if code == ErrorCode.rebalance_in_progress:
                    self._perform(self.member.rebalance(self._clock.monotonic()))
                    raise
                if code in _COORDINATOR_ERRORS or isinstance(error, UnavailableError):
                    self._mark_coordinator_unknown()
                pause = backoff.failed()
                if not error.retriable or self._clock.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets of `partitions`."""
        return await fetch_group_offsets(self._cluster, self.group_id, partitions, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Stop the timer; call `leave` first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- actions ------------------------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[Action]) -> None:
        """Start the actions and set the timer."""
        for action in actions:
            self._cluster.spawn(self._carry_out(action), f"group {self.group_id}: {type(action).__name__}")
        self._schedule_tick()
        self._on_change()

    def _schedule_tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.member.next_at()
        if at != float("inf"):
            delay = max(at - self._clock.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.member.tick(self._clock.monotonic()))

    async def _carry_out(self, action: Action) -> None:
        """Send one request and pass the response on. Any connection failure marks the coordinator unknown."""
        try:
            following = await self._request(action)
        except UnavailableError as error:
            _log.debug("group %s: %s: %s", self.group_id, type(action).__name__, error)
            self._mark_coordinator_unknown()
            return
        except KafkaError as error:
            following = self.member.failed(error)
        except Exception as error:
            # A custom assignor may raise anything; without a reply the group would wait for this leader.
            _log.exception("group %s: %s", self.group_id, type(action).__name__)
            if isinstance(action, PerformAssignment):
                following = self.member.assignment_failed(error, action.generation_id)
            else:
                text = f"group {self.group_id}: {type(action).__name__}: {error!r}"
                following = self.member.failed(OdradekError(text))
        following = tuple(following)
        if any(isinstance(each, FindCoordinator) for each in following):
            self._pause_s = self._backoff.failed()
        elif not isinstance(action, FindCoordinator | PerformAssignment):
            self._backoff.succeeded()
            self._pause_s = 0.0
        self._perform(following)

    async def _request(self, action: Action) -> Iterable[Action]:
        match action:
            case FindCoordinator():
                self._connection = None  # it may lead to a living broker that is not the coordinator any more
                await self._find_coordinator()
                return self.member.coordinator_found(self._clock.monotonic())
            case PerformAssignment():
                assignments = await self._perform_assignment(action)
                return self.member.assignment_computed(assignments, action.generation_id)
        connection = self._connection
        if connection is None or connection.closed:
            raise UnavailableError("there is no connection to the coordinator")
        match action:
            case JoinGroup():
                answer = await self._send_join_group(connection, action)
                return self.member.join_group_answered(answer, self._clock.monotonic())
            case SyncGroup():
                synced = await self._send_sync_group(connection, action)
                return self.member.sync_group_answered(synced, self._clock.monotonic())
            case Heartbeat():
                code = await self._send_heartbeat(connection, action)
                return self.member.heartbeat_answered(code, action.generation_id, self._clock.monotonic())
            case LeaveGroup():
                with suppress(TimeoutError):
                    await self._send_leave_group(action)
        return ()

    async def _find_coordinator(self) -> None:
        """Find the coordinator, retrying. Raises `KafkaError` for errors that are not retriable."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self._ensure_coordinator_ready()
                return
            except (KafkaError, UnavailableError) as error:
                if not error.retriable:
                    raise
                _log.debug("group %s: %s", self.group_id, error)
                self._pause_s = self._backoff.failed()

    async def _ensure_coordinator_ready(self) -> ClientConnection:
        """Return the connection to the coordinator, found and opened if necessary."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._node_id = node_id = await find_coordinator(self._cluster, self.group_id)
        connection = await self._cluster.connection(node_id, ConnectionPurpose.COORDINATOR)
        if connection is not self._connection:
            self._connection = connection
            connection.on_close(lambda _: self._on_connection_closed(connection))
        return connection

    def _on_connection_closed(self, connection: ClientConnection) -> None:
        if connection is self._connection:
            self._mark_coordinator_unknown()

    def _mark_coordinator_unknown(self) -> None:
        """Look up the coordinator again at once: without heartbeats the session expires."""
        self._connection = self._node_id = None
        self._pause_s = self._backoff.failed()
        self._perform(self.member.coordinator_lost())

    async def _send_join_group(self, connection: ClientConnection, action: JoinGroup) -> JoinGroupResponse:
        protocols = [
            {"name": name, "metadata": self._subscription_metadata(assignor, action)}
            for name, assignor in self._assignors.items()
        ]
        message = {
            "group_id": self.group_id,
            "session_timeout": self._settings.session_timeout_ms,
            "rebalance_timeout": self._settings.max_poll_interval_ms,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols,
            "reason": None,
        }
        timeout_ms = max(
            self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        response = await connection.request(ApiKey.JOIN_GROUP, message, timeout_ms=timeout_ms)
        return JoinGroupResponse(
            error_code=response.error_code,
            member_id=response.member_id,
            generation_id=response.generation_id,
            protocol=response.protocol_name,
            leader=response.leader,
            skip_assignment=optional(response, "skip_assignment", default=False),
            leave_count=action.leave_count,
            subscriptions={member.member_id: bytes(member.metadata) for member in response.members},
            instance_ids={member.member_id: optional(member, "group_instance_id", None) for member in response.members},
        )

    def _subscription_metadata(self, assignor: Assignor, action: JoinGroup) -> bytes:
        """Encode the member's subscription with the assignor's user data."""
        return encode_subscription(
            Subscription(
                topics=self._topics,
                user_data=assignor.user_data(self._topics),
                owned_partitions=tuple(sorted(action.owned)),
                generation_id=action.generation_id,
                rack_id=self._settings.client_rack,
            )
        )

    async def _perform_assignment(self, action: PerformAssignment) -> Mapping[str, bytes]:
        """Compute the assignment from current metadata."""
        members = {member_id: decode_subscription(metadata) for member_id, metadata in action.subscriptions.items()}
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        self._assignment_snapshot = dict.fromkeys(topics, 0)
        self._on_change()
        await self._cluster.refresh()
        self._assignment_snapshot = self._partition_counts(topics)
        counts = {topic: count for topic, count in self._assignment_snapshot.items() if count}
        group = GroupSubscription(
            partitions=counts,
            members={
                member_id: MemberSubscription(
                    topics=subscription.topics,
                    owned=subscription.owned_partitions,
                    generation=subscription.generation_id,
                    rack=subscription.rack_id,
                    instance_id=action.instance_ids.get(member_id),
                    user_data=subscription.user_data,
                )
                for member_id, subscription in members.items()
            },
            replica_racks={topic: self._racks(topic) for topic in counts},
        )
        assignment = self._assignors[action.protocol].assign(group)
        return {
            member_id: encode_assignment(Assignment(partitions=tuple(TopicPartition(*each) for each in partitions)))
            for member_id, partitions in assignment.items()
        }

    async def _send_sync_group(self, connection: ClientConnection, action: SyncGroup) -> SyncGroupResponse:
        message = {
            "group_id": self.group_id,
            "generation_id": action.generation_id,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": action.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in action.assignments.items()
            ],
        }
        timeout_ms = max(
            self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        response = await connection.request(ApiKey.SYNC_GROUP, message, timeout_ms=timeout_ms)
        if response.error_code != ErrorCode.none:
            return SyncGroupResponse(error_code=response.error_code)
        partitions = decode_assignment(response.assignment).partitions
        if action.generation_id == self.member.generation_id:
            self._assignors[action.protocol].on_assignment(partitions, action.generation_id)
        return SyncGroupResponse(error_code=ErrorCode.none, assignment=frozenset(partitions))

    async def _send_heartbeat(self, connection: ClientConnection, action: Heartbeat) -> ErrorCode:
        message = {
            "group_id": self.group_id,
            "generation_id": action.generation_id,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
        }
        timeout_ms = min(self._settings.session_timeout_ms, self._settings.request_timeout_ms)
        response = await connection.request(ApiKey.HEARTBEAT, message, timeout_ms=timeout_ms)
        code: ErrorCode = response.error_code
        return code

    async def _send_leave_group(self, action: LeaveGroup) -> None:
        """Send LeaveGroup on another connection, because a JoinGroup may block the coordinator connection."""
        assert self._node_id is not None
        member = {"member_id": action.member_id, "group_instance_id": None, "reason": action.reason}
        message: dict[str, Any] = {"group_id": self.group_id, "member_id": action.member_id, "members": [member]}
        async with asyncio.timeout(_LEAVE_TIMEOUT_MS / 1000):
            connection = await self._cluster.connection(self._node_id)
            await connection.request(ApiKey.LEAVE_GROUP, message, timeout_ms=_LEAVE_TIMEOUT_MS)

    # ---- metadata -----------------------------------------------------------------------------------------------

    def _rejoin_if_partitions_changed(self) -> None:
        """Request a rebalance as the leader if partition counts differ from those of the assignment."""
        if (
            self._assignment_snapshot is None
            or not self.member.is_leader
            or self.member.state is not MemberState.STABLE
        ):
            return
        if self._partition_counts(self._assignment_snapshot) != self._assignment_snapshot:
            self._perform(self.member.rebalance(self._clock.monotonic()))

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._cluster.metadata.partitions_for_topic(topic)) for topic in topics}

    def _racks(self, topic: str) -> list[set[str]]:
        metadata = self._cluster.metadata
        return [
            {
                rack
                for node_id in partition.replicas
                if node_id in metadata.nodes and (rack := metadata.nodes[node_id].rack)
            }
            for partition in metadata.topics[topic].partitions.values()
        ]

    def _group_metadata(self) -> ConsumerGroupMetadata:
        if self.member.state is MemberState.UNSUBSCRIBED:
            return ConsumerGroupMetadata()
        return ConsumerGroupMetadata(self.member.generation_id, self.member.member_id, self._settings.group_instance_id)


def create_assignors(strategies: str | Assignor | Iterable[str | Assignor]) -> list[Assignor]:
    """Create assignors from names, comma-separated as in a properties file, or objects. Raises `ConfigurationError`."""
    if isinstance(strategies, str):
        strategies = [name.strip() for name in strategies.split(",")]
    chosen = strategies if isinstance(strategies, Iterable) else [strategies]
    try:
        return [create_assignor(each) for each in chosen]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
