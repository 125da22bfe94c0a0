"""Fetches records in the background: at most one fetch in flight per broker.

`send_fetches` sends a fetch to each broker that leads partitions with room for more records; responses are stored in
`SubscriptionState`, from where the consumer takes them. A broker without new records holds its response (long poll), so
an idle consumer costs nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.consumer.settings import RESETS, ConsumerSettings
from odradek.clients.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek.clients.fetch import FetchLimits, FetchPosition, fetch, out_of_range
from odradek.clients.retry import INVALID_METADATA_ERRORS
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.fetch import FetchedPartition

_log = logging.getLogger("odradek.clients")


class Fetcher:
    """Fetches for the assigned partitions. `on_records` is called when there are records or errors to collect."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscriptions: SubscriptionState,
        on_records: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._on_records = on_records
        self._limits = FetchLimits(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level,
        )
        self._nodes_with_pending_fetch: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        cluster.on_metadata.append(self.send_fetches)

    def close(self) -> None:
        """Stop sending fetches."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def send_fetches(self) -> None:
        """Send a fetch to every broker that has partitions to fetch and no fetch in flight."""
        if self._closed:
            return
        now = self._cluster.runtime.clock.monotonic()
        by_leader: dict[int, list[TopicPartitionState]] = {}
        for state in self._subscriptions:
            if not state.is_fetchable:
                continue
            if state.retry_at > now:
                self._send_fetches_later(state.retry_at - now)
                continue
            leader = self._cluster.metadata.leader(state.partition)
            if leader is None:
                self._cluster.request_refresh()
            elif leader not in self._nodes_with_pending_fetch:
                by_leader.setdefault(leader, []).append(state)
        for leader, states in by_leader.items():
            self._nodes_with_pending_fetch.add(leader)
            for state in states:
                state.is_fetching = True
            self._cluster.spawn(self._fetch(leader, states), f"fetch from broker {leader}")

    async def _fetch(self, leader: int, states: list[TopicPartitionState]) -> None:
        versions = {state.partition: state.version for state in states}
        positions = {
            state.partition: FetchPosition(state.fetch_position, self._settings.max_partition_fetch_bytes)
            for state in states
        }
        answer: Mapping[TopicPartition, FetchedPartition] = {}
        retry_at = 0.0
        try:
            connection = await self._cluster.connection(leader, ConnectionPurpose.FETCH)
            answer = await fetch(self._cluster, connection, positions, self._limits)
        except (UnavailableError, KafkaError) as error:
            _log.debug("Fetch from broker %d failed: %s", leader, error)
            self._cluster.request_refresh()
            retry_at = self._retry_at()
        finally:
            self._nodes_with_pending_fetch.discard(leader)
            for state in states:
                if state.version == versions[state.partition]:
                    state.is_fetching = False
                    state.retry_at = retry_at
                    if state.partition in answer:
                        self._handle_partition_response(state, answer[state.partition])
        self._on_records()
        self.send_fetches()

    def _handle_partition_response(self, state: TopicPartitionState, answer: FetchedPartition) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.none:
            state.fetched(answer, check_crcs=self._settings.check_crcs)
        elif code == ErrorCode.offset_out_of_range:
            self._handle_offset_out_of_range(state, answer)
        elif code in INVALID_METADATA_ERRORS or code.retriable:
            self._cluster.request_refresh()
            state.retry_at = self._retry_at()
        else:
            state.error = KafkaError(code, f"partition {state.partition}: {code.name.upper()}")

    def _handle_offset_out_of_range(self, state: TopicPartitionState, answer: FetchedPartition) -> None:
        """Reset the offset as `auto.offset.reset` says: the log lost it by retention or by a leader change."""
        timestamp = RESETS[self._settings.auto_offset_reset]
        if state.buffers or state.has_pending:
            # Buffered records are returned first; a later fetch gets the same error.
            state.retry_at = self._retry_at()
        elif timestamp is None:
            state.error = out_of_range(state.partition, state.fetch_position, answer)
        else:
            _log.warning(
                "Fetch position %d is out of range for partition %s, resetting to the %s offset",
                state.fetch_position,
                state.partition,
                self._settings.auto_offset_reset,
            )
            state.request_offset_reset(timestamp)

    def _retry_at(self) -> float:
        return self._cluster.runtime.clock.monotonic() + self._settings.retry_backoff_ms / 1000

    def _send_fetches_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.send_fetches)
