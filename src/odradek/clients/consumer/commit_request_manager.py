"""CommitRequestManager: what was handed out so far becomes the group's offsets, when asked for or from time to time."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
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
"""How long an automatic commit is tried: the next one carries more, and closing should not take for ever."""


class CommitRequestManager:
    """The positions of one consumer and the offsets of its group; see the module."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscriptions: SubscriptionState, group: ConsumerCoordinator
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._group = group
        self._committed: dict[TopicPartition, int] = {}
        self._in_flight: asyncio.Task[None] | None = None
        self._interval_s = settings.auto_commit_interval_ms / 1000
        self.next_auto_commit_at = (
            cluster.runtime.clock.monotonic() + self._interval_s if settings.enable_auto_commit else inf
        )
        """When the next automatic commit is due, in monotonic seconds; never if there are none."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit these. Raises what `ConsumerCoordinator.commit` does."""
        if offsets:
            await self._group.commit(offsets, timeout_ms=timeout_ms)
            self._committed.update((partition, offset.offset) for partition, offset in offsets.items())

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to read of every partition that has one."""
        return {
            state.partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for state in self._subscriptions
            if state.position is not None
        }

    def auto_commit_async(self, now: float) -> None:
        """Commit what was handed out so far, in the background, if it is time."""
        if now < self.next_auto_commit_at:
            return
        self.next_auto_commit_at = now + self._interval_s
        offsets = self._uncommitted(self._subscriptions.partitions)
        if offsets and (self._in_flight is None or self._in_flight.done()):
            self._in_flight = self._cluster.spawn(self._commit_or_log(offsets), "automatic commit")

    async def auto_commit_sync(self, partitions: Iterable[TopicPartition]) -> None:
        """The last automatic commit of partitions that go."""
        if not self._settings.enable_auto_commit:
            return
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight])
        await self._commit_or_log(self._uncommitted(partitions))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read no more; another member may commit them."""
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
            _log.warning("group %s: automatic commit: %s", self._group.group_id, error)
