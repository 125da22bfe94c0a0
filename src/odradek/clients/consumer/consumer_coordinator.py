"""Runs a consumer's group membership: the coordinator connection, group requests, timers, and commits.

The state machine of the group protocol (`membership`) returns actions. Each becomes a request on a connection that only
group requests use; the response goes back to the state machine. Rebalance callbacks wait in
`Membership.pending_callback` for the consumer's poll.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.consumer.actions import (
    Action,
    FindCoordinator,
    LeaveGroup,
    PartitionsAssigned,
    PartitionsRevoked,
    PerformAssignment,
    RebalanceCallback,
)
from odradek.clients.consumer.membership.interface import GroupRequests, Membership
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.coordinators import find_coordinator
from odradek.clients.group_offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    commit_once,
    fetch_group_offsets,
)
from odradek.model import AuthenticationError, ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.wire.client_connection import WAITING_LOG_S, ClientConnection, waiting_log

_log = logging.getLogger("odradek.clients")
_LEAVE_TIMEOUT_MS = 5_000
_REMOVED: Final = "UNKNOWN_MEMBER_ID: group {} removed this member, and others may have its partitions by now"
_COORDINATOR_ERRORS = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
_REFUSED_WHILE_JOINING: Final = {
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.rebalance_in_progress,
}


class ConsumerCoordinator:
    """The group membership and commits of one consumer. `on_change` is called when a callback may be pending."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        group_id: str,
        requests: GroupRequests,
        on_change: Callable[[], None],
    ) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._settings = settings
        self._clock = cluster.runtime.clock
        self._requests = requests
        self._on_change = on_change
        self._lost_memberships = 0
        self._has_joined = False
        self._node_id: int | None = None
        self._connection: ClientConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = cluster.backoff()
        self._pause_s = 0.0
        """The delay before FindCoordinator, against a busy loop with a broker that closes every connection."""
        cluster.on_metadata.append(self._on_metadata)

    @property
    def member(self) -> Membership:
        return self._requests.member

    # ---- calls of the consumer ----------------------------------------------------------------------------------

    @property
    def metadata_topics(self) -> set[str]:
        return self._requests.metadata_topics

    def subscribe(self, topics: Iterable[str], pattern: "re.Pattern[str] | None" = None) -> None:
        self._perform(self._requests.subscribe(topics, pattern, self._clock.monotonic()))

    def poll_started(self) -> None:
        """Stop the poll timer. Raises the error that prevents membership, or the assignor's error."""
        self._perform(self.member.poll_started())
        self.raise_error()

    def raise_error(self) -> None:
        """Raise the error that prevents membership, or the assignor's error if this member is the leader."""
        if self.member.error is not None:
            raise self.member.error
        if (error := self.member.take_assignment_error(self._clock.monotonic())) is not None:
            self._schedule_tick()
            raise error

    def poll_finished(self) -> None:
        self.member.poll_finished(self._clock.monotonic())
        self._schedule_tick()

    def callback_completed(self, callback: RebalanceCallback) -> None:
        if isinstance(callback, PartitionsRevoked) and callback.lost:
            self._lost_memberships += 1
        elif isinstance(callback, PartitionsAssigned):
            self._has_joined = True
        self._perform(self.member.callback_completed(callback, self._clock.monotonic()))

    async def leave(self, reason: str) -> None:
        """Leave the group at once instead of by the session timeout. Errors are ignored."""
        self._has_joined = False
        actions = self.member.leave(reason)
        for action in actions:
            if isinstance(action, LeaveGroup) and self._connection is not None and not self._connection.closed:
                try:
                    await self._send_leave_group(action)
                except (OdradekError, TimeoutError) as error:
                    _log.debug("Failed to leave group %s: %s", self.group_id, error)
        self._schedule_tick()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets as a member, or without membership before the first join or if no topic is subscribed.

        From the subscription until the first join is complete, the coordinator may refuse a commit; it is retried then.
        Later, raises `KafkaError` REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if other members may
        own the partitions: do not retry such a commit.
        """
        deadline = self._clock.monotonic() + timeout_ms / 1000
        backoff, lost_memberships = self._cluster.backoff(), self._lost_memberships
        member_id = self.group_metadata().member_id
        while True:
            sent: ConsumerGroupMetadata | None = None
            try:
                node_id = await self._ensure_coordinator_ready() if self._node_id is None else self._node_id
                # The coordinator connection may be blocked by a JoinGroup for the whole rebalance.
                connection = await self._cluster.connections.to_broker(node_id)
                membership = self.group_metadata()
                is_other_member = bool(member_id) and membership.member_id != member_id
                has_left = self._has_joined and self.member.is_subscribed and membership.generation_id < 0
                if self._lost_memberships != lost_memberships or is_other_member or has_left:
                    raise KafkaError(ErrorCode.unknown_member_id, _REMOVED.format(self.group_id))
                sent = membership
                await commit_once(connection, self.group_id, sent, offsets)
                return
            except (KafkaError, UnavailableError) as error:
                code = error.code if isinstance(error, KafkaError) else None
                is_joining = code in _REFUSED_WHILE_JOINING and sent is not None and self._joins_for_the_first_time
                # A refusal of an earlier generation, or by this method, says nothing of the present generation.
                is_of_present = self._lost_memberships == lost_memberships and sent == self.group_metadata()
                if code is not None and is_of_present and not is_joining:
                    self._perform(self.member.commit_refused(code, self._clock.monotonic()))
                if code == ErrorCode.rebalance_in_progress and not is_joining:
                    raise
                if code in _COORDINATOR_ERRORS or isinstance(error, UnavailableError):
                    self._mark_coordinator_unknown()
                pause = backoff.failed()
                # STALE_MEMBER_EPOCH is retried: the next heartbeat returns the new epoch.
                is_final = not (error.retriable or is_joining or code == ErrorCode.stale_member_epoch)
                if is_final or self._clock.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)

    @property
    def _joins_for_the_first_time(self) -> bool:
        return self.member.is_subscribed and not self._has_joined and self.member.error is None

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await fetch_group_offsets(self._cluster, self.group_id, partitions, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Stop the timer; call `leave` first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- actions ------------------------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._cluster.tasks.spawn(self._carry_out(action), f"group {self.group_id}: {type(action).__name__}")
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
        """Perform one action, then those that follow; a connection failure marks the coordinator unknown."""
        try:
            following = await self._request(action)
        except UnavailableError as error:
            _log.debug("group %s: %s: %s", self.group_id, type(action).__name__, error)
            self._mark_coordinator_unknown()
            return
        except (KafkaError, AuthenticationError) as error:
            following = self.member.failed(error)
        except Exception as error:
            _log.exception("group %s: %s", self.group_id, type(action).__name__)
            text = f"group {self.group_id}: {type(action).__name__}: {error!r}"
            following = self.member.failed(OdradekError(text))
        if any(isinstance(each, FindCoordinator) for each in following):
            self._pause_s = self._backoff.failed()
        elif not isinstance(action, FindCoordinator | PerformAssignment):
            self._backoff.succeeded()
            self._pause_s = 0.0
        self._perform(following)

    async def _request(self, action: Action) -> list[Action]:
        if isinstance(action, FindCoordinator):
            self._connection = None  # its broker may be alive and no longer the coordinator
            await self._find_coordinator()
            return self.member.coordinator_found(self._clock.monotonic())
        computed = await self._requests.compute(action)
        if computed is not None:
            return computed
        if isinstance(action, LeaveGroup):
            if self._node_id is not None:
                with suppress(TimeoutError):
                    await self._send_leave_group(action)
            return []
        connection = self._connection
        if connection is None or connection.closed:
            raise UnavailableError("there is no connection to the coordinator")
        return await self._requests.send(connection, action)

    async def _find_coordinator(self) -> None:
        """Find the coordinator, retrying. Raises `KafkaError` for errors that are not retriable."""
        started, is_logged = self._clock.monotonic(), False
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self._ensure_coordinator_ready()
                return
            except (KafkaError, UnavailableError) as error:
                if not error.retriable:
                    raise
                if not is_logged and self._clock.monotonic() >= started + WAITING_LOG_S:
                    is_logged = True
                    waiting_log.info("group %s: %s; trying again", self.group_id, error)
                self._pause_s = self._backoff.failed()

    async def _ensure_coordinator_ready(self) -> int:
        """Return the coordinator's id; if there is no open connection to it, find it and connect."""
        if self._node_id is not None and self._connection is not None and not self._connection.closed:
            return self._node_id
        node_id = await find_coordinator(self._cluster, self.group_id)
        connection = await self._cluster.connections.to_broker(node_id, ConnectionPurpose.COORDINATOR)
        self._node_id = node_id  # after the await: another task may mark it as unknown meanwhile
        if connection is not self._connection:
            self._connection = connection
            connection.on_close(lambda _: self._on_connection_closed(connection))
        return node_id

    def _on_connection_closed(self, connection: ClientConnection) -> None:
        if connection is self._connection:
            self._mark_coordinator_unknown()

    def _mark_coordinator_unknown(self) -> None:
        """Find the coordinator again after a backoff, because without heartbeats the session expires."""
        self._connection = self._node_id = None
        self._pause_s = self._backoff.failed()
        self._perform(self.member.coordinator_lost())

    async def _send_leave_group(self, action: LeaveGroup) -> None:
        """Send LeaveGroup on the data connection: a JoinGroup may block the coordinator connection."""
        assert self._node_id is not None
        async with asyncio.timeout(_LEAVE_TIMEOUT_MS / 1000):
            connection = await self._cluster.connections.to_broker(self._node_id)
            await self._requests.leave(connection, action)

    # ---- metadata -----------------------------------------------------------------------------------------------

    def _on_metadata(self) -> None:
        self._perform(self._requests.metadata_updated(self._clock.monotonic()))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the present membership; without one, only the group."""
        if not self.member.is_subscribed:
            return ConsumerGroupMetadata(group_id=self.group_id)
        instance_id = self._settings.group_instance_id
        return ConsumerGroupMetadata(self.member.generation_id, self.member.member_id, instance_id, self.group_id)
