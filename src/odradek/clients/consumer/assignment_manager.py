"""Updates a consumer's assigned partitions by its subscription and group, or without a group by the metadata.

`run_callbacks`, which the consumer's poll calls, runs rebalance callbacks and the commits before them.
"""

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.actions import PartitionsAssigned, PartitionsRevoked, RebalanceCallback
from odradek.clients.consumer.commit_request_manager import CommitRequestManager
from odradek.clients.consumer.consumer_coordinator import ConsumerCoordinator
from odradek.clients.consumer.metrics import ConsumerMetrics
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription import Subscription, SubscriptionType
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.model import TopicPartition

_SUBSCRIBED = {SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN}


class AssignmentManager:
    """Updates the partitions in `SubscriptionState` when the subscription, the group or the metadata changes.

    `group` and `commits` are None for a consumer without a group.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscriptions: SubscriptionState,
        group: ConsumerCoordinator | None,
        commits: CommitRequestManager | None,
        metrics: ConsumerMetrics,
    ) -> None:
        self.subscription = Subscription()
        """The application's subscription; `Consumer` assigns it."""
        self._cluster = cluster
        self._settings = settings
        self._subscriptions = subscriptions
        self._group = group
        self._commits = commits
        self._metrics = metrics
        self._clock = cluster.runtime.clock

    def subscribed_topics(self) -> frozenset[str]:
        """Return the subscribed topics, including those that the pattern matches."""
        return self.subscription.matching_topics(
            self._cluster.metadata, exclude_internal=self._settings.exclude_internal_topics
        )

    def update_metadata_topics(self) -> None:
        """Set the topics whose metadata the cluster client refreshes: those in use, or all for a pattern."""
        if self.subscription.type is SubscriptionType.AUTO_PATTERN:
            self._cluster.set_topics(None)
            return
        topics = {partition.topic for partition in self._subscriptions.partitions} | self.subscription.topics
        self._cluster.set_topics(topics | (self._group.metadata_topics if self._group is not None else set()))

    def apply_subscription(self) -> None:
        """Apply a changed subscription: join the group, or without a group assign all partitions."""
        self.update_metadata_topics()
        self.update_assignment()
        if self.subscription.type is SubscriptionType.AUTO_PATTERN or any(
            not self._cluster.metadata.partitions_for_topic(topic) for topic in self.subscribed_topics()
        ):
            self._cluster.request_refresh(at_once=True)

    def update_assignment(self) -> None:
        """Apply new metadata: subscribe to new topics of the pattern, or without a group assign new partitions."""
        if self.subscription.type in _SUBSCRIBED:
            topics = self.subscribed_topics()
            if self._group is not None:
                self._group.subscribe(topics, self.subscription.pattern)
            else:
                metadata = self._cluster.metadata
                self._subscriptions.assign(
                    TopicPartition(topic, number) for topic in topics for number in metadata.partitions_for_topic(topic)
                )
        self.update_metadata_topics()

    async def run_callbacks(self) -> None:
        """Run the pending rebalance callbacks. Raises errors of the callbacks and of the group."""
        group = self._group
        if group is None:
            return
        while (callback := group.member.pending_callback) is not None:
            await self._run_callback(group, callback)
        group.raise_error()

    async def leave(self, reason: str) -> None:
        """Commit positions (if automatic, and the partitions are not lost), revoke all partitions, leave the group."""
        partitions = self._subscriptions.partitions
        try:
            if partitions and self.subscription.type is not SubscriptionType.USER_ASSIGNED and self._group is not None:
                await self._revoke(partitions, lost=self._group.member.generation_id < 0)
            elif self._commits is not None:
                await self._commits.auto_commit_sync(partitions)
        finally:
            self._subscriptions.assign(())
            if self._group is not None:
                await self._group.leave(reason)

    async def _run_callback(self, group: ConsumerCoordinator, callback: RebalanceCallback) -> None:
        """Change the assignment and run the application's callbacks, whose errors are raised after the change."""
        started_at = self._clock.monotonic()
        group.member.callback_started(callback)
        try:
            if isinstance(callback, PartitionsRevoked):
                await self._revoke(callback.partitions, lost=callback.lost)
            else:
                if callback.revoked:
                    await self._revoke(callback.revoked, lost=False)
                self._subscriptions.assign(callback.assignment)
                self.update_metadata_topics()
                if any(self._cluster.metadata.leader(partition) is None for partition in callback.added):
                    self._cluster.request_refresh(at_once=True)
                await self.subscription.on_assigned(callback.added)
        finally:
            now = self._clock.monotonic()
            self._metrics.callback_completed(now - started_at)
            if isinstance(callback, PartitionsAssigned):
                self._metrics.rebalance_total += 1
                self._metrics.rebalanced_at = now
            group.callback_completed(callback)

    async def _revoke(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        try:
            if not lost and self._commits is not None:
                await self._commits.auto_commit_sync(partitions)
            await self.subscription.on_revoked(partitions, lost=lost)
        finally:
            self._subscriptions.assign(self._subscriptions.partitions - partitions)
            if self._commits is not None:
                self._commits.forget(partitions)
