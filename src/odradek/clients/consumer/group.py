"""Carries out what `Membership` says: requests to the coordinator, the leader's assignment, timers.

Decisions are the machine's. Here an action becomes a request on the coordinator's own lane, and its answer an input.
What the application has to do waits in `Membership.work` until the consumer's poll takes it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription, create_assignor
from odradek.clients.cluster import Cluster, Lane
from odradek.clients.consumer.actions import (
    Action,
    Assign,
    FindCoordinator,
    Join,
    JoinAnswer,
    Leave,
    MemberTiming,
    SendHeartbeat,
    Sync,
    SyncAnswer,
    Work,
)
from odradek.clients.consumer.membership import Membership, MemberState
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.group_offsets import (
    Committer,
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
from odradek.wire.outgoing import Connection

_log = logging.getLogger("odradek.clients")
_JOIN_GRACE_MS = 5_000
"""How much longer than the rebalance itself a JoinGroup may take to be answered; as in Kafka."""
_LEAVE_PATIENCE_MS = 5_000
_FENCED = {ErrorCode.illegal_generation, ErrorCode.unknown_member_id}
_ELSEWHERE = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}


class Group:
    """See the module. `on_change` is called when there may be work for the application."""

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
        self._watched: dict[str, int] | None = None
        """Partition counts that the leader computed its assignment from."""
        self._node_id: int | None = None
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = cluster.backoff()
        self._pause_s = 0.0
        """How long to wait before the coordinator is looked for: one that only closes connections is found at once."""
        self.member = Membership(
            MemberTiming(
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                max_poll_interval_ms=settings.max_poll_interval_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
            ),
            group_instance_id=settings.group_instance_id,
            is_cooperative=all(getattr(each, "is_cooperative", False) for each in self._assignors.values()),
        )
        cluster.on_metadata.append(self._compare_with_assignment)

    # ---- what the consumer calls --------------------------------------------------------------------------------

    @property
    def topics_to_know(self) -> set[str]:
        """Topics whose partitions matter: our own, and as a leader the whole group's."""
        return set(self._topics) | set(self._watched or ())

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member that reads these topics."""
        self._topics = tuple(sorted(set(topics)))
        self._do(self.member.subscribe(self._topics, self._clock.monotonic()))

    def polling(self) -> None:
        """The application is in `poll`. Raises the error for which it can never be a member."""
        self._do(self.member.polling())
        if self.member.error is not None:
            raise self.member.error

    def polled(self) -> None:
        """The application has left `poll`."""
        self.member.polled(self._clock.monotonic())
        self._arm()

    def done(self, work: Work) -> None:
        """The application has done its work."""
        self._do(self.member.done(work, self._clock.monotonic()))

    async def leave(self, reason: str) -> None:
        """Leave the group, so that others need not wait for the session to end; without an answer, leave anyway."""
        self._topics, self._watched = (), None
        actions = self.member.leave(reason)
        for action in actions:
            if isinstance(action, Leave) and self._connection is not None and not self._connection.closed:
                try:
                    await self._leave(action)
                except (KafkaError, UnavailableError, TimeoutError) as error:
                    _log.debug("group %s: leaving: %s", self.group_id, error)
        self._arm()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit as the member that we are, or without a membership if nothing is subscribed.

        Raises `KafkaError` REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID when the partitions may be
        another's by now: such a commit must not be repeated.
        """
        deadline = self._clock.monotonic() + timeout_ms / 1000
        backoff = self._cluster.backoff()
        while True:
            try:
                if self._node_id is None:
                    await self._coordinator()
                assert self._node_id is not None
                # Not on the coordinator's lane: a JoinGroup may wait there for the whole rebalance.
                connection = await self._cluster.connection(self._node_id)
                await commit_once(connection, self.group_id, self._committer(), offsets)
                return
            except (KafkaError, UnavailableError) as error:
                code = error.code if isinstance(error, KafkaError) else None
                if code in _FENCED:
                    self._do(self.member.fenced(ErrorCode(code)))
                if code == ErrorCode.rebalance_in_progress:
                    self._do(self.member.rebalance(self._clock.monotonic()))
                    raise
                if code in _ELSEWHERE or isinstance(error, UnavailableError):
                    self._forget_coordinator()
                pause = backoff.failed()
                if not error.retriable or self._clock.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for `partitions`."""
        return await fetch_group_offsets(self._cluster, self.group_id, partitions, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Stop the timer; `leave` first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- actions ------------------------------------------------------------------------------------------------

    def _do(self, actions: Iterable[Action]) -> None:
        """Send what the machine says, and wait for its next moment."""
        for action in actions:
            self._cluster.spawn(self._carry_out(action), f"group {self.group_id}: {type(action).__name__}")
        self._arm()
        self._on_change()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.member.next_at()
        if at != float("inf"):
            delay = max(at - self._clock.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self.member.tick(self._clock.monotonic()))

    async def _carry_out(self, action: Action) -> None:
        """One request, and what it means for the machine. Whatever fails on the way is a lost coordinator."""
        try:
            following = await self._request(action)
        except UnavailableError as error:
            _log.debug("group %s: %s: %s", self.group_id, type(action).__name__, error)
            self._forget_coordinator()
            return
        except KafkaError as error:
            following = self.member.failed(error)
        except Exception as error:
            # An assignor of the user's own may raise anything, and without an answer the group would wait for ever.
            _log.exception("group %s: %s", self.group_id, type(action).__name__)
            following = self.member.failed(OdradekError(f"group {self.group_id}: {type(action).__name__}: {error!r}"))
        if not isinstance(action, FindCoordinator | Assign):
            self._backoff.succeeded()
            self._pause_s = 0.0
        self._do(following)

    async def _request(self, action: Action) -> Iterable[Action]:
        match action:
            case FindCoordinator():
                await self._find()
                return self.member.coordinator_found(self._clock.monotonic())
            case Assign():
                assignments = await self._assign(action)
                return self.member.assigned(assignments, action.generation_id)
        connection = self._connection
        if connection is None or connection.closed:
            raise UnavailableError("there is no connection to the coordinator")
        match action:
            case Join():
                answer = await self._join(connection, action)
                return self.member.joined(answer, self._clock.monotonic())
            case Sync():
                synced = await self._sync(connection, action)
                return self.member.synced(synced, self._clock.monotonic())
            case SendHeartbeat():
                code = await self._heartbeat(connection, action)
                return self.member.beaten(code, action.generation_id, self._clock.monotonic())
            case Leave():
                with suppress(TimeoutError):
                    await self._leave(action)
        return ()

    async def _find(self) -> None:
        """Look for the coordinator until it is there. Raises `KafkaError` only for what will not pass."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self._coordinator()
                return
            except (KafkaError, UnavailableError) as error:
                if not error.retriable:
                    raise
                _log.debug("group %s: %s", self.group_id, error)
                self._pause_s = self._backoff.failed()

    async def _coordinator(self) -> Connection:
        """The connection to the coordinator, found and opened if need be."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._node_id = node_id = await find_coordinator(self._cluster, self.group_id)
        connection = await self._cluster.connection(node_id, Lane.COORDINATOR)
        if connection is not self._connection:
            self._connection = connection
            connection.on_close(lambda _: self._closed(connection))
        return connection

    def _closed(self, connection: Connection) -> None:
        if connection is self._connection:
            self._forget_coordinator()

    def _forget_coordinator(self) -> None:
        """Ask anew who it is, at once: a member that cannot be heard is out after its session."""
        self._connection = self._node_id = None
        self._pause_s = self._backoff.failed()
        self._do(self.member.coordinator_lost())

    async def _join(self, connection: Connection, action: Join) -> JoinAnswer:
        protocols = [
            {"name": name, "metadata": self._subscription(assignor, action)}
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
        timeout_ms = max(self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GRACE_MS)
        response = await connection.request(ApiKey.JOIN_GROUP, message, timeout_ms=timeout_ms)
        return JoinAnswer(
            error_code=response.error_code,
            member_id=response.member_id,
            generation_id=response.generation_id,
            protocol=response.protocol_name,
            leader=response.leader,
            skip_assignment=optional(response, "skip_assignment", default=False),
            departures=action.departures,
            subscriptions={member.member_id: bytes(member.metadata) for member in response.members},
            instance_ids={member.member_id: optional(member, "group_instance_id", None) for member in response.members},
        )

    def _subscription(self, assignor: Assignor, action: Join) -> bytes:
        """What a member says to the leader; an assignor may add bytes of its own (`user_data`)."""
        user_data: Callable[[Iterable[str]], bytes | None] | None = getattr(assignor, "user_data", None)
        return encode_subscription(
            Subscription(
                topics=self._topics,
                user_data=user_data(self._topics) if user_data is not None else None,
                owned_partitions=tuple(sorted(action.owned)),
                generation_id=action.generation_id,
                rack_id=self._settings.client_rack,
            )
        )

    async def _assign(self, action: Assign) -> Mapping[str, bytes]:
        """Who gets what, of the partitions that there are now."""
        members = {member_id: decode_subscription(metadata) for member_id, metadata in action.subscriptions.items()}
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        self._watched = dict.fromkeys(topics, 0)
        self._on_change()
        await self._cluster.refresh()
        self._watched = self._counts(topics)
        counts = {topic: count for topic, count in self._watched.items() if count}
        group = GroupSubscription(
            partitions=counts,
            members={
                member_id: MemberSubscription(
                    topics=subscription.topics,
                    owned=subscription.owned_partitions,
                    generation=subscription.generation_id,
                    rack=subscription.rack_id,
                    instance_id=action.instance_ids.get(member_id),
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

    async def _sync(self, connection: Connection, action: Sync) -> SyncAnswer:
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
        timeout_ms = max(self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GRACE_MS)
        response = await connection.request(ApiKey.SYNC_GROUP, message, timeout_ms=timeout_ms)
        if response.error_code != ErrorCode.none:
            return SyncAnswer(error_code=response.error_code)
        assignment = decode_assignment(response.assignment)
        return SyncAnswer(error_code=ErrorCode.none, assignment=frozenset(assignment.partitions))

    async def _heartbeat(self, connection: Connection, action: SendHeartbeat) -> ErrorCode:
        message = {
            "group_id": self.group_id,
            "generation_id": action.generation_id,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
        }
        patience_ms = min(self._settings.session_timeout_ms, self._settings.request_timeout_ms)
        response = await connection.request(ApiKey.HEARTBEAT, message, timeout_ms=patience_ms)
        code: ErrorCode = response.error_code
        return code

    async def _leave(self, action: Leave) -> None:
        """Send LeaveGroup, but not on the coordinator's lane, where a JoinGroup may wait for the whole rebalance."""
        assert self._node_id is not None
        member = {"member_id": action.member_id, "group_instance_id": None, "reason": action.reason}
        message: dict[str, Any] = {"group_id": self.group_id, "member_id": action.member_id, "members": [member]}
        async with asyncio.timeout(_LEAVE_PATIENCE_MS / 1000):
            connection = await self._cluster.connection(self._node_id)
            await connection.request(ApiKey.LEAVE_GROUP, message, timeout_ms=_LEAVE_PATIENCE_MS)

    # ---- the cluster's shape ------------------------------------------------------------------------------------

    def _compare_with_assignment(self) -> None:
        """A leader has the group join again when the partitions are others than those it gave out."""
        if self._watched is None or not self.member.is_leader or self.member.state is not MemberState.MEMBER:
            return
        if self._counts(self._watched) != self._watched:
            self._do(self.member.rebalance(self._clock.monotonic()))

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
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

    def _committer(self) -> Committer:
        if self.member.state is MemberState.DOWN:
            return Committer()
        return Committer(self.member.generation_id, self.member.member_id, self._settings.group_instance_id)


def create_assignors(strategies: str | Assignor | Iterable[str | Assignor]) -> list[Assignor]:
    """Assignors by name, comma-separated as in a properties file, or as objects. Raises `ConfigurationError`."""
    if isinstance(strategies, str):
        strategies = [name.strip() for name in strategies.split(",")]
    chosen = strategies if isinstance(strategies, Iterable) else [strategies]
    try:
        return [create_assignor(each) for each in chosen]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
