"""Finds initial fetch positions: committed offsets, or else those of `auto.offset.reset`."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.consumer_coordinator import ConsumerCoordinator
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek.clients.offsets import LATEST, by_topic, list_offsets
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError

_log = logging.getLogger("odradek.clients")
_LIST_OFFSETS_TIMEOUT_MS = 5_000
"""The time limit of one attempt; the next poll starts another."""


class OffsetFetcher:
    """Finds missing positions in the background. `on_update` is called after each attempt."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscriptions: SubscriptionState,
        group: ConsumerCoordinator | None,
        on_update: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._group = group
        self._on_update = on_update
        self._updating: asyncio.Task[None] | None = None

    def update_fetch_positions_async(self) -> None:
        """Start a task that finds missing positions, unless one is running."""
        if self._updating is not None and not self._updating.done():
            return
        if any(state.position is None and state.error is None for state in self._subscriptions):
            self._updating = self._cluster.tasks.spawn(self._update_fetch_positions(), "positions")

    def stop(self) -> None:
        if self._updating is not None:
            self._updating.cancel()

    async def _update_fetch_positions(self) -> None:
        """Make one attempt; the next poll retries after a retriable error, and raises any other error."""
        states = [state for state in self._subscriptions if state.position is None]
        try:
            await self.update_fetch_positions(states)
        except (KafkaError, UnavailableError) as error:
            if error.retriable or not states:
                _log.warning("Failed to update fetch positions, will retry: %s", error)
            else:
                states[0].error = error
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        finally:
            self._on_update()

    async def update_fetch_positions(self, states: Iterable[TopicPartitionState]) -> None:
        """Set a position or an error for every state without a position; a concurrent seek wins.

        If all records are earlier than the reset timestamp, the next call sets the end offset. Raises `KafkaError` or
        `UnavailableError` if a request failed.
        """
        missing = [state for state in states if state.position is None and state.error is None]
        uninitialized = [state for state in missing if state.reset is None]
        if uninitialized:
            await self._seek_to_committed(uninitialized)
        lookups = {
            state.partition: (state, state.version, state.reset)
            for state in missing
            if state.reset is not None and state.position is None
        }
        # One lookup per topic, so that a deleted topic does not block the others.
        results = await asyncio.gather(
            *(
                _reset_offsets(self._cluster, {each: lookups[each] for each in some}, self._settings.isolation_level)
                for _, some in by_topic(lookups)
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _seek_to_committed(self, uninitialized: list[TopicPartitionState]) -> None:
        """Seek to committed offsets; without one, request a reset, or with `auto.offset.reset` none set an error."""
        versions = {state.partition: state.version for state in uninitialized}
        committed = {}
        if self._group is not None:
            committed = await self._group.committed(versions, timeout_ms=self._settings.default_api_timeout_ms)
        timestamp = self._settings.reset_timestamp(self._cluster.runtime.clock.now_ms())
        for state in uninitialized:
            if state.version != versions[state.partition] or state.position is not None or state.reset is not None:
                continue
            commit = committed.get(state.partition)
            if commit is not None:
                state.seek(commit.offset, commit.leader_epoch)
            elif timestamp is not None:
                state.request_offset_reset(timestamp)
            else:
                state.error = KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"partition {state.partition} has no committed offset, and auto_offset_reset is none",
                )


async def _reset_offsets(
    cluster: Cluster, lookups: dict[TopicPartition, tuple[TopicPartitionState, int, int]], isolation_level: str
) -> None:
    wanted = {partition: timestamp for partition, (_, _, timestamp) in lookups.items()}
    found = await list_offsets(cluster, wanted, isolation_level=isolation_level, timeout_ms=_LIST_OFFSETS_TIMEOUT_MS)
    for partition, (state, version, _) in lookups.items():
        if state.version != version:
            continue
        if found[partition].offset < 0:
            # All records are earlier than the timestamp.
            state.request_offset_reset(LATEST)
        else:
            state.seek(found[partition].offset, found[partition].leader_epoch)
