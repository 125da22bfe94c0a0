"""Offset commits of a consumer: those of the application, and automatic ones."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.consumer_coordinator import ConsumerCoordinator
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import OdradekError, TopicPartition

_log = logging.getLogger("odradek.clients")
_AUTO_COMMIT_TIMEOUT_MS: Final = 5_000
"""The time limit of an automatic commit, which is short so that `close` does not block for long."""


class CommitRequestManager:
    """Commits the positions of one consumer for its group.

    `on_commit` is called after each successful commit with its offsets and its duration in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscriptions: SubscriptionState,
        group: ConsumerCoordinator,
        on_commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata], float], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._group = group
        self._on_commit = on_commit
        self._committed: dict[TopicPartition, int] = {}
        self._in_flight: asyncio.Task[None] | None = None
        self._interval_s = settings.auto_commit_interval_ms / 1000
        self.next_auto_commit_at = (
            cluster.runtime.clock.monotonic() + self._interval_s if settings.enable_auto_commit else inf
        )
        """The monotonic second of the next automatic commit; infinite without automatic commits."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets. Raises `KafkaError` if the coordinator refuses, `UnavailableError` without a coordinator."""
        if offsets:
            clock = self._cluster.runtime.clock
            started_at = clock.monotonic()
            await self._group.commit(offsets, timeout_ms=timeout_ms)
            self._committed.update((partition, offset.offset) for partition, offset in offsets.items())
            self._on_commit(offsets, clock.monotonic() - started_at)

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of every partition that has one."""
        return {
            state.partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for state in self._subscriptions
            if state.position is not None
        }

    def auto_commit_async(self, now: float) -> None:
        """Commit the positions in the background if `auto.commit.interval.ms` has passed."""
        if now < self.next_auto_commit_at:
            return
        self.next_auto_commit_at = now + self._interval_s
        offsets = self._uncommitted(self._subscriptions.partitions)
        if offsets and (self._in_flight is None or self._in_flight.done()):
            self._in_flight = self._cluster.tasks.spawn(self._commit_or_log(offsets), "automatic commit")

    async def auto_commit_sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the positions of `partitions` before they are revoked, if commits are automatic; only log errors."""
        if not self._settings.enable_auto_commit:
            return
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight])
        await self._commit_or_log(self._uncommitted(partitions))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the committed offsets of revoked partitions, because another member may commit newer ones."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def _uncommitted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        all_consumed = self.all_consumed()
        return {
            partition: all_consumed[partition]
            for partition in partitions
            if partition in all_consumed and self._committed.get(partition) != all_consumed[partition].offset
        }

    async def _commit_or_log(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self.commit(offsets, timeout_ms=_AUTO_COMMIT_TIMEOUT_MS)
        except OdradekError as error:
            _log.warning("Automatic commit of group %s failed: %s", self._group.group_id, error)
