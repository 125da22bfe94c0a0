"""The `Controller`: created when this broker is elected, and closed when it resigns or another broker is elected.

It owns the controller epoch, by which all writes are fenced, and the tasks. Requests of clients and brokers become
jobs, which the metadata loop runs one after the other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from msgspec.structs import replace

from odradek.broker.cluster.metadata.controller_command_handler import LocalReplicas
from odradek.broker.cluster.metadata.controller_election import Election
from odradek.broker.controller import jobs
from odradek.broker.controller.controller_channel_manager import ControllerChannelManager
from odradek.broker.controller.controller_epoch import ControllerContext, ControllerEpoch
from odradek.broker.controller.machine.topic_creation import NewPartitions, TopicCreation
from odradek.broker.controller.machine.topic_deletion import TopicDeletion
from odradek.broker.controller.tasks import (
    ControllerTask,
    LeaderElectionTask,
    LogDirEventTask,
    PreferredLeaderBalancer,
    PreferredReplicaElectionTask,
    ReassignmentTask,
    TopicDeletionTask,
)
from odradek.broker.counters import BrokerCounters
from odradek.broker.replication.alter_partition_manager import IsrResult
from odradek.metadata.image import MetadataDelta
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import Runtime
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity

T = TypeVar("T")
_DELETION_S: Final = 30.0
"""Time for which DeleteTopics waits for brokers that do not answer. A dead broker's session expires long before."""
_ACKNOWLEDGEMENT_S: Final = 2.0
"""Time for which CreateTopics waits for registered brokers that do not answer."""

TASKS: Final[tuple[type[ControllerTask], ...]] = (
    TopicDeletionTask,
    LogDirEventTask,
    LeaderElectionTask,
    PreferredReplicaElectionTask,
    ReassignmentTask,
    PreferredLeaderBalancer,
)
"""The tasks in the order in which they run. The image has a task's changes of the tree before the next task runs."""


class Controller:
    """The elected controller, from its election until `close`."""

    def __init__(
        self,
        election: Election,
        *,
        replicas: LocalReplicas,
        runtime: Runtime,
        counters: BrokerCounters,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        view = election.view
        context = ControllerContext(wake_tasks=view.wake)
        channels = ControllerChannelManager(
            view, replicas, runtime, security, epoch=election.epoch, update_replicas=context.update_replicas
        )
        self.epoch = ControllerEpoch(election, runtime.entropy, context, channels, counters)
        self.view = view
        self._fence = election.fence
        self._run_in_turn = election.run_in_turn
        self._entropy = runtime.entropy
        self._is_closed = False
        self._tasks = [task(self.epoch) for task in TASKS]
        self._image = view.image

    # ---- as the metadata loop uses it ----------------------------------------------------------------------------

    @property
    def shutting_down(self) -> Set[int]:
        return self.epoch.context.shutting_down

    def image_changed(self, delta: MetadataDelta) -> None:
        """Pass a new image, or the first one of this epoch, to the tasks and the channels."""
        if delta.old is not self._image:  # while this broker was elected, it received another image
            delta = MetadataDelta.between(self._image, delta.new)
        self._image = delta.new
        self.epoch.context.brokers_changed(delta.new.brokers)
        for task in self._tasks:
            task.image_changed(delta)
        self.epoch.channels.image_changed(delta)

    async def run_tasks(self) -> bool:
        """Run the tasks in order up to the first one that writes to the tree; return whether one did."""
        for task in self._tasks:
            writes = self.epoch.writes
            await task.run()
            if self.epoch.writes > writes:
                return True
        return False

    def close(self) -> None:
        """Stop the tasks and the channels to the other brokers. Waiting jobs fail with NOT_CONTROLLER."""
        self._is_closed = True
        self.epoch.channels.close()
        for task in self._tasks:
            task.close()

    # ---- requests ------------------------------------------------------------------------------------------------

    async def do(self, work: Callable[[ControllerEpoch], Awaitable[T]]) -> T:
        """Run `work` in the metadata loop, then update the image, and return the result of `work`.

        Raises `KafkaError` if this broker is not the controller or cannot reach the tree, and the errors of `work`.
        """

        def active_epoch() -> ControllerEpoch:
            if self._is_closed or not self._fence.check():
                raise KafkaError(ErrorCode.not_controller, "this broker is not the controller")
            return self.epoch

        active_epoch()  # a request to a broker that has resigned fails at once, however many jobs wait
        return await self._run_in_turn(lambda: work(active_epoch()))

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicCreation]:
        """Create topics, each completely or not at all, and return the results in order.

        When this returns, the image has the topics, and so have the other brokers that responded in time. Raises
        `KafkaError` if this broker is not the controller or the tree cannot be reached.
        """
        entropy = self._entropy
        created = await self.do(lambda epoch: jobs.create_topics(epoch, wanted, entropy, validate_only=validate_only))
        await self._wait_for_acknowledgements()
        return created

    async def delete_topics(self, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
        """Delete topics by name or id. When this returns, neither the image nor the tree has them.

        If a live broker does not delete its replicas in time, the topic's result is REQUEST_TIMED_OUT, and the
        deletion goes on. Raises `KafkaError` if this broker is not the controller or the tree cannot be reached.
        """
        view = self.view
        deletions = await self.do(lambda epoch: jobs.delete_topics(epoch, wanted))
        names = {each.name for each in deletions if each.error is None}
        try:
            async with asyncio.timeout(_DELETION_S):
                await view.wait_until(lambda: self._is_closed or view.image.deleting.isdisjoint(names))
        except TimeoutError:
            late = KafkaError(ErrorCode.request_timed_out, "a broker has not deleted its replicas yet")
            deletions = [
                replace(each, error=late) if each.error is None and each.name in view.image.deleting else each
                for each in deletions
            ]
        if self._is_closed:
            raise KafkaError(ErrorCode.not_controller, "this broker is no longer the controller")
        return deletions

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics, all or none per topic, and return each topic's error or None.

        When this returns, the image has the partitions, with leaders, and so have the other brokers that responded in
        time. Raises `KafkaError` if this broker is not the controller or the tree cannot be reached.
        """
        results = await self.do(lambda epoch: jobs.create_partitions(epoch, wanted, validate_only=validate_only))
        await self._wait_for_acknowledgements()
        return results

    async def _wait_for_acknowledgements(self) -> None:
        """Wait up to `_ACKNOWLEDGEMENT_S` until the other brokers have acknowledged the current image."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ACKNOWLEDGEMENT_S):
                await self.epoch.channels.all_acknowledged()

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, items: Mapping[TopicPartition, AlterPartitionItem]
    ) -> dict[TopicPartition, IsrResult]:
        """Change ISRs as the leader `broker_id` requests, and return each partition's ISR or error.

        When this returns, the image has the changes. Raises `KafkaError` if `broker_epoch` is old, this broker is not
        the controller, or the tree cannot be reached.
        """
        return await self.do(lambda epoch: jobs.alter_partitions(epoch, broker_id, broker_epoch, items))

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Move leaderships off a broker that shuts down; return the replicated partitions that it still leads.

        From now on the broker is elected only where no other can lead. Raises `KafkaError` if it is not registered with
        `broker_epoch` (-1: any), this broker is not the controller, or the tree cannot be reached.
        """
        plan = await self.do(lambda epoch: jobs.shut_down_broker(epoch, broker_id, broker_epoch))
        self.epoch.channels.stop_following(broker_id, plan.stop)
        return plan.remaining
