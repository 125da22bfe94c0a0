"""Keeps records coming: one fetch under way per broker, for those of its partitions that have room for more.

`wake` looks at all partitions and sends what can be sent; answers go into `Positions`, from where the consumer takes
them. A broker that is asked holds its answer until there is something (long poll), so an idle consumer costs nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from odradek.clients.cluster import Cluster, Lane
from odradek.clients.consumer.positions import PartitionState, Positions
from odradek.clients.consumer.settings import RESETS, ConsumerSettings
from odradek.clients.fetch import FetchLimits, FetchPosition, fetch, out_of_range
from odradek.clients.retry import MOVED
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.fetch import FetchedPartition

_log = logging.getLogger("odradek.clients")


class Fetcher:
    """See the module. `on_records` is called when there is something to take, an error included."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, positions: Positions, on_records: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._on_records = on_records
        self._limits = FetchLimits(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level,
        )
        self._asking: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        cluster.on_metadata.append(self.wake)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Send a fetch to every broker that has partitions to fetch and none under way."""
        if self._closed:
            return
        now = self._cluster.runtime.clock.monotonic()
        by_leader: dict[int, list[PartitionState]] = {}
        for state in self._positions:
            if not state.is_fetchable:
                continue
            if state.not_before > now:
                self._wake_later(state.not_before - now)
                continue
            leader = self._cluster.metadata.leader(state.partition)
            if leader is None:
                self._cluster.request_refresh()
            elif leader not in self._asking:
                by_leader.setdefault(leader, []).append(state)
        for leader, states in by_leader.items():
            self._asking.add(leader)
            for state in states:
                state.is_fetching = True
            self._cluster.spawn(self._fetch(leader, states), f"fetch from broker {leader}")

    async def _fetch(self, leader: int, states: list[PartitionState]) -> None:
        """One fetch, whatever becomes of it."""
        versions = {state.partition: state.version for state in states}
        positions = {
            state.partition: FetchPosition(state.fetch_position, self._settings.max_partition_fetch_bytes)
            for state in states
        }
        answer: Mapping[TopicPartition, FetchedPartition] = {}
        retry_at = 0.0
        try:
            connection = await self._cluster.connection(leader, Lane.FETCH)
            answer = await fetch(self._cluster, connection, positions, self._limits)
        except (UnavailableError, KafkaError) as error:
            _log.debug("fetching from broker %d: %s", leader, error)
            self._cluster.request_refresh()
            retry_at = self._retry_at()
        finally:
            self._asking.discard(leader)
            for state in states:
                if state.version == versions[state.partition]:
                    state.is_fetching = False
                    state.not_before = retry_at
                    if state.partition in answer:
                        self._answered(state, answer[state.partition])
        self._on_records()
        self.wake()

    def _answered(self, state: PartitionState, answer: FetchedPartition) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.none:
            state.fetched(answer, check_crcs=self._settings.check_crcs)
        elif code == ErrorCode.offset_out_of_range:
            self._reset(state, answer)
        elif code in MOVED or code.retriable:
            self._cluster.request_refresh()
            state.not_before = self._retry_at()
        else:
            state.error = KafkaError(code, f"partition {state.partition}: {code.name.upper()}")

    def _reset(self, state: PartitionState, answer: FetchedPartition) -> None:
        """The log does not hold the position, by retention or by a new leader: go where `auto.offset.reset` says."""
        timestamp = RESETS[self._settings.auto_offset_reset]
        if state.buffers or state.has_pending:
            # What came before is handed out first; then the same answer comes again.
            state.not_before = self._retry_at()
        elif timestamp is None:
            state.error = out_of_range(state.partition, state.fetch_position, answer)
        else:
            _log.warning(
                "%s: the log does not hold offset %d: starting at its %s offset",
                state.partition,
                state.fetch_position,
                self._settings.auto_offset_reset,
            )
            state.look_up(timestamp)

    def _retry_at(self) -> float:
        return self._cluster.runtime.clock.monotonic() + self._settings.retry_backoff_ms / 1000

    def _wake_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.wake)
