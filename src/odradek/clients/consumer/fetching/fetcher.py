"""Fetches records in the background, with at most one request in flight per broker, in a fetch session (KIP-227).

`send_fetches` requests the partitions that have room for more records, and stores responses in `SubscriptionState`. A
broker without new records delays its response (long poll), so an idle consumer costs nothing. A partition is fetched
after its position was validated (KIP-320), from its leader or from the replica that the leader has named for
`client.rack` (KIP-392).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.consumer.fetching.position_validator import PositionValidator
from odradek.clients.consumer.metrics import ConsumerMetrics
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek.clients.fetch import (
    FetchLimits,
    FetchPosition,
    encode_fetch,
    out_of_range,
    send_fetch,
    supports_topic_ids,
)
from odradek.clients.leader_fetch import TopicRecreatedError
from odradek.clients.metadata import ClusterMetadata
from odradek.clients.retry import INVALID_METADATA_ERRORS
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.protocol.messages.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SESSION_ERRORS,
    FetchRequest,
    FetchSessionHandler,
)

_log = logging.getLogger("odradek.clients")


class FetchBufferLimit:
    """Divides `limit_bytes` between buffered records and fetches in flight.

    Sizes are compressed bytes, as received. Each fetch in flight may exceed the limit by one batch, because brokers
    return at least one (KIP-74).
    """

    def __init__(self, limit_bytes: int, fetch_max_bytes: int) -> None:
        self._limit = limit_bytes
        self._fetch_max_bytes = fetch_max_bytes

    def shares(
        self, idle: Sequence[int], pending: Mapping[int, int], states: Iterable[TopicPartitionState]
    ) -> dict[int, int]:
        """Return the bytes to request now from each of the `idle` brokers; brokers that must wait are absent.

        `pending` has the bytes of the fetches in flight, by broker. A fetch starts only with room for a full one or
        for half of the limit, because many small fetches cost more. If paused partitions fill the memory, their
        records are dropped, and fetched again after `resume`.
        """
        full = min(self._fetch_max_bytes, self._limit // (len(idle) + len(pending)) or 1)
        wanted = min(full, self._limit // 2 or 1)
        buffering = [state for state in states if state.buffered_bytes]
        room = self._limit - sum(pending.values()) - sum(state.buffered_bytes for state in buffering)
        if room < wanted and not pending and all(state.is_paused for state in buffering):
            for state in buffering:
                state.drop_buffered()
            room = self._limit
        shares = {}
        for node_id in idle:
            if room < wanted:
                break
            shares[node_id] = min(full, room)
            room -= shares[node_id]
        return shares


class Fetcher:
    """Fetches for the assigned partitions. `on_records` is called when there are records or errors to collect."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscriptions: SubscriptionState,
        metrics: ConsumerMetrics,
        on_records: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._metrics = metrics
        self._on_records = on_records
        self._limits = FetchLimits(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level,
            rack=settings.client_rack or "",
        )
        self._sessions: dict[int, FetchSessionHandler[FetchPosition]] = {}
        self._buffer_limit = FetchBufferLimit(settings.queued_max_messages_kbytes << 10, settings.fetch_max_bytes)
        self._validator = PositionValidator(cluster, settings, self._on_answer)
        self._pending: dict[int, int] = {}
        """The bytes that each broker with a fetch in flight may return."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        cluster.on_metadata.append(self.send_fetches)

    def close(self) -> None:
        """Stop sending fetches, and close the sessions without waiting for responses."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for node_id, session in self._sessions.items():
            # On the fetch connection, this request would wait behind a long poll.
            connection = self._cluster.connections.existing(node_id)
            if session.session_id and connection is not None:
                request = FetchRequest[FetchPosition](
                    positions={}, session_id=session.session_id, session_epoch=FINAL_EPOCH, uses_topic_ids=True
                )
                connection.post(ApiKey.FETCH, *encode_fetch(connection, request, self._limits))

    def send_fetches(self) -> None:
        """Send a fetch to every broker with partitions to fetch and no fetch in flight, while there is memory."""
        if self._closed or self._cluster.authentication_error is not None:
            return  # the next poll raises that error
        now, metadata = self._cluster.runtime.clock.monotonic(), self._cluster.metadata
        by_replica: dict[int, list[TopicPartitionState]] = {}
        by_leader: dict[int, list[TopicPartitionState]] = {}
        for state in self._subscriptions:
            if state.metadata is not metadata:
                self._update_leader(state, metadata)
            if not state.is_fetchable:
                continue
            if state.retry_at > now:
                self._send_fetches_later(state.retry_at - now)
            elif state.leader is None or state.is_ahead_of_metadata:
                self._cluster.request_refresh()
            elif state.needs_validation:
                by_leader.setdefault(state.leader, []).append(state)
            else:
                by_replica.setdefault(self._read_replica(state, state.leader, metadata, now), []).append(state)
        for leader, states in by_leader.items():
            self._validator.validate(leader, states)
        idle = {node_id: states for node_id, states in by_replica.items() if node_id not in self._pending}
        if not idle:
            return
        shares = self._buffer_limit.shares(list(idle), self._pending, self._subscriptions)
        for node_id, max_bytes in shares.items():
            states = [state for state in idle[node_id] if state.is_fetchable]
            self._pending[node_id] = max_bytes
            for state in states:
                state.is_fetching = True
            self._cluster.tasks.spawn(self._fetch(node_id, states, max_bytes), f"fetch from broker {node_id}")

    def _update_leader(self, state: TopicPartitionState, metadata: ClusterMetadata) -> None:
        """Take the leader from new metadata; reset the position if the topic was created again (another topic id)."""
        before = state.topic_id
        state.update_leader(metadata)
        if before is not None and state.topic_id is not None and before != state.topic_id:
            self._reset_offset(state, TopicRecreatedError(state.partition.topic, before, state.topic_id))

    def _read_replica(self, state: TopicPartitionState, leader: int, metadata: ClusterMetadata, now: float) -> int:
        """Return the broker to fetch from: the preferred replica until it expires or goes offline, else the leader."""
        replica = state.preferred_read_replica
        if replica is None:
            return leader
        partition = metadata.partition(state.partition)
        is_offline = replica not in metadata.nodes or (partition is not None and replica in partition.offline_replicas)
        if now < state.preferred_until and not is_offline:
            return replica
        if is_offline:
            _log.debug("Replica %d of partition %s is offline, fetching from the leader", replica, state.partition)
            self._cluster.request_refresh()
        state.preferred_read_replica = None
        return leader

    async def _fetch(self, node_id: int, states: Sequence[TopicPartitionState], max_bytes: int) -> None:
        versions = {state.partition: state.version for state in states}
        answers: Mapping[TopicPartition, FetchedPartition] = {}
        retry_at = 0.0
        session = self._sessions.setdefault(node_id, FetchSessionHandler())
        is_incremental = session.epoch != INITIAL_EPOCH
        try:
            answers = await self._exchange(node_id, session, states, max_bytes)
        except (UnavailableError, KafkaError) as error:
            _log.debug("Fetch from broker %d failed: %s", node_id, error)
            if not (is_incremental and isinstance(error, KafkaError) and error.code in SESSION_ERRORS):
                self._cluster.request_refresh()
                retry_at = self._retry_at()
                for state in states:
                    state.preferred_read_replica = None
        finally:
            del self._pending[node_id]
            for state in states:
                if state.version == versions[state.partition]:
                    state.is_fetching = False
                    state.retry_at = retry_at
        for partition, answer in answers.items():
            # A session returns an end offset only once, so it is stored even if the position has changed.
            current = self._subscriptions.get(partition)
            if current is not None and answer.error_code == ErrorCode.none:
                current.update_end(answer)
        for state in states:
            if state.partition in answers and state.version == versions[state.partition]:
                self._handle_partition_response(node_id, state, answers[state.partition])
        self._on_answer()

    async def _exchange(
        self,
        node_id: int,
        session: FetchSessionHandler[FetchPosition],
        states: Sequence[TopicPartitionState],
        max_bytes: int,
    ) -> Mapping[TopicPartition, FetchedPartition]:
        most = self._settings.max_partition_fetch_bytes
        positions = {
            state.partition: FetchPosition(state.fetch_position, most, state.current_leader_epoch, state.topic_id)
            for state in states
        }
        try:
            connection = await self._cluster.connections.to_broker(node_id, ConnectionPurpose.FETCH)
            request = session.build(positions, uses_topic_ids=supports_topic_ids(connection, positions))
            limits = replace(self._limits, max_bytes=max_bytes)
            sent_at = self._cluster.runtime.clock.monotonic()
            response = await send_fetch(connection, request, limits, self._cluster.settings)
        except (UnavailableError, KafkaError):
            session.handle_error()
            raise
        size = sum(len(each.records or b"") for topic in response.topics for each in topic.partitions)
        latency_s = self._cluster.runtime.clock.monotonic() - sent_at
        self._metrics.fetched(latency_s, size, response.throttle_time_ms)
        return session.handle_response(response, positions)

    def _handle_partition_response(self, node_id: int, state: TopicPartitionState, answer: FetchedPartition) -> None:
        code = ErrorCode(answer.error_code)
        replica = state.preferred_read_replica
        if code != ErrorCode.none:
            state.preferred_read_replica = None
        if code == ErrorCode.none:
            if answer.preferred_read_replica >= 0:
                state.preferred_read_replica = answer.preferred_read_replica
                age_s = self._settings.metadata_max_age_ms / 1000
                state.preferred_until = self._cluster.runtime.clock.monotonic() + age_s
            state.fetched(answer, check_crcs=self._settings.check_crcs)
        elif code == ErrorCode.offset_out_of_range:
            if replica is not None and replica == node_id:
                return  # a follower may be behind the leader, from which the next fetch reads
            self._handle_offset_out_of_range(state, answer)
        elif code in INVALID_METADATA_ERRORS or code.retriable:
            self._cluster.request_refresh()
            state.retry_at = self._retry_at()
        else:
            state.error = KafkaError(code, f"partition {state.partition}: {explained(code)}")

    def _handle_offset_out_of_range(self, state: TopicPartitionState, answer: FetchedPartition) -> None:
        """Reset the position if no records are buffered: retention or a leader change removed the offset."""
        if state.has_buffered:
            # The application gets buffered records first; a later fetch gets the same error.
            state.retry_at = self._retry_at()
        else:
            self._reset_offset(state, out_of_range(state.partition, state.fetch_position, answer))

    def _reset_offset(self, state: TopicPartitionState, error: KafkaError) -> None:
        """Reset the position by `auto.offset.reset`; if that is `none`, store `error` for the next poll."""
        if state.position is None:
            return
        timestamp = self._settings.reset_timestamp(self._cluster.runtime.clock.now_ms())
        if timestamp is None:
            state.error = error
        else:
            policy = self._settings.auto_offset_reset
            _log.warning("Resetting the offset of partition %s (%s): %s", state.partition, policy, error)
            state.request_offset_reset(timestamp)

    def _on_answer(self) -> None:
        self._on_records()
        self.send_fetches()

    def _retry_at(self) -> float:
        return self._cluster.runtime.clock.monotonic() + self._settings.retry_backoff_ms / 1000

    def _send_fetches_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.send_fetches)
