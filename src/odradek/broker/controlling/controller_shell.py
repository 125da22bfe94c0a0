"""A broker's part in the cluster: its picture of it, and the controller's work if it is elected.

One task does it all, one thing after the other: read what changed in the tree, publish the new image, do what the
controller has to do about it (`duties`), then what was asked for (`topic_jobs`). Since a controller decides from the
tree alone, the next one finishes whatever this one leaves half done, and its first look at the tree is its only full
one.

The image is all a broker needs: it tells which partitions it leads and follows. The controller has it from the tree,
and tells the others what changed (`commands`); they believe it (`cluster`) and watch next to nothing in the tree.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from odradek.broker.cluster.cluster_view import ClusterView, OnImage
from odradek.broker.cluster.controller_command_handler import ControllerCommandHandler
from odradek.broker.cluster.controller_commands import LocalReplicas
from odradek.broker.cluster.fencing import Fence
from odradek.broker.cluster.membership import Membership, prepare_tree
from odradek.broker.cluster.registration import Prepare, prepare_nothing, unregister
from odradek.broker.config_changes import ConfigChange, write_changes
from odradek.broker.controlling import alter_partition_jobs as isr_jobs
from odradek.broker.controlling import topic_jobs
from odradek.broker.controlling.channels.controller_channel_manager import ControllerChannelManager
from odradek.broker.controlling.controller_epoch import ControllerEpoch, ControllerMovedError, register_controller
from odradek.broker.controlling.job_queue import JobQueue, as_kafka_error
from odradek.broker.controlling.term import Term
from odradek.broker.replication.isr_requests import IsrResult
from odradek.config import BrokerConfig, ListenerAddress
from odradek.controller import (
    AlterPartitionItem,
    ControlledShutdownPlan,
    NewPartitions,
    NewTopic,
    TopicCreation,
    TopicDeletion,
    next_producer_id_block,
    shut_down,
)
from odradek.metadata import paths
from odradek.metadata.image import NO_CONTROLLER, BrokerImage, ClusterImage
from odradek.metadata.nodes import BrokenNodeError, ProducerIdBlockNode
from odradek.metadata.reading import BrokenNodes, read_registrations
from odradek.metadata.store import BadVersion, NoNode, SessionExpired, Store
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.runtime import Runtime

T = TypeVar("T")
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 5.0
_PATIENCE_S: Final = 10.0
"""How long a broker that starts waits for the controller before it says so."""
_DELETION_S: Final = 30.0
"""How long whoever deletes a topic waits for brokers that do not answer; they are dead, or do, long before."""
_TELLING_S: Final = 2.0
"""How long whoever creates a topic waits for a broker that does not answer, and has not been found to be dead."""
_LONGEST_PATIENCE_S: Final = 300.0
_log = logging.getLogger("odradek.broker")


class ControllerShell:
    """One broker in the cluster. `on_image(old, new)` is called on the event loop after every change.

    `fence` is opened when the image is one of a living session, and closed when that may be over.

    A topic that is to be deleted is not in the new image; `replicas` are told to delete theirs before its nodes are
    removed. A topic with another id under the same name is another topic.
    """

    def __init__(
        self,
        store: Store,
        broker_id: int,
        endpoints: Sequence[ListenerAddress],
        config: BrokerConfig,
        runtime: Runtime,
        *,
        fence: Fence | None = None,
        on_image: OnImage,
        replicas: LocalReplicas,
    ) -> None:
        self.broker_id = broker_id
        self._store = store
        self._runtime = runtime
        self._term: Term | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        wake = self._wake.set
        self._fence = fence or Fence(store, runtime.clock)
        self._membership = Membership(store, broker_id, endpoints, config, runtime.clock, fence=self._fence, wake=wake)
        self._jobs = JobQueue(wake=wake)
        self.view = ClusterView(store, broker_id, config, on_image=on_image, wake=wake)
        self._replicas = replicas
        self.command_handler = ControllerCommandHandler(self.view, self._membership, replicas, wake=wake)
        self._joined = asyncio.Event()

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        return self.view.image

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._term is not None

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._membership.epoch

    @property
    def shutting_down(self) -> Set[int]:
        """Brokers that are about to stop, as far as this broker knows: the controller does."""
        return frozenset() if self._term is None else self._term.controller.shutting_down

    async def start(self, *, prepare: Prepare = prepare_nothing) -> None:
        """Join the cluster: register, be elected if nobody is, else wait until the controller has said everything.

        `prepare` comes before it registers (see `registration`). Raises `ConfigurationError` if another broker has this
        id, and the store's errors.
        """
        cluster_id = await prepare_tree(self._store, self._runtime.entropy)
        self.view.image = ClusterImage(cluster_id=cluster_id)
        self.view.start()
        await self._membership.join(prepare=prepare)
        self._fence.on_change(closed=self._give_up)
        await self._settle()
        self._fence.start(wake=self.view.mark_all)
        self._task = asyncio.create_task(self._run(), name=f"controller shell of broker {self.broker_id}")
        await self._wait_for_commands()

    async def _wait_for_commands(self) -> None:
        patience_s = _PATIENCE_S
        while not self._joined.is_set():
            try:
                async with asyncio.timeout(patience_s):
                    await self._joined.wait()
            except TimeoutError:
                patience_s = min(patience_s * 2, _LONGEST_PATIENCE_S)
                known = self.image.controller_id
                whom = "a controller" if known == NO_CONTROLLER else f"the controller, broker {known},"
                _log.warning(
                    "broker %d waits for %s to tell it what the cluster looks like, and serves nobody until then",
                    self.broker_id,
                    whom,
                )

    async def stop(self) -> None:
        """Leave the cluster: others may be elected at once. The store stays open."""
        self.kill()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._jobs.fail_all(KafkaError(ErrorCode.not_controller))
        await self._membership.leave()

    def kill(self) -> None:
        """Do nothing more, as a process that was killed; the tree learns nothing."""
        self._fence.stop()
        self.view.stop()
        self._membership.stop()
        if self._task is not None:
            self._task.cancel()
        self._end_term()

    # ---- what is asked for --------------------------------------------------------------------------------------

    async def do(self, work: Callable[[ControllerEpoch], Awaitable[T]]) -> T:
        """Have the task do `work` in its turn, as the controller, and return when what it marked is in `image`.

        Raises `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """

        def controller() -> ControllerEpoch:
            if self._term is None or not self._fence.check():
                raise KafkaError(ErrorCode.not_controller, "this broker is not the controller")
            return self._term.controller

        controller()  # who is not should say so at once, whatever else it has to do
        return await self._ask(lambda: work(controller()))

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicCreation]:
        """Create topics, each or not at all; when this returns they are in `image`, and `on_image` was called.

        The other brokers that are well know them, too. Raises `KafkaError` if this broker is not the controller, or the
        tree cannot be reached.
        """
        view, entropy = self.view, self._runtime.entropy
        created = await self.do(
            lambda controller: topic_jobs.create_topics(controller, view, wanted, entropy, validate_only=validate_only)
        )
        await self._tell_everybody()
        return created

    async def delete_topics(self, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
        """Delete topics by name or id; when this returns nothing of them is in `image`, nor in the tree.

        Those that a live broker does not stop having in time are REQUEST_TIMED_OUT, and deleted nevertheless. Raises
        `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """
        view = self.view
        deletions = await self.do(lambda controller: topic_jobs.delete_topics(controller, view, wanted))
        names = {each.name for each in deletions if each.error is None}
        try:
            async with asyncio.timeout(_DELETION_S):
                await view.until(lambda: view.image.deleting.isdisjoint(names))
        except TimeoutError:
            late = KafkaError(ErrorCode.request_timed_out, "a broker has not deleted its replicas yet")
            deletions = [
                replace(each, error=late) if each.error is None and each.name in view.image.deleting else each
                for each in deletions
            ]
        return deletions

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Give topics more partitions, each all or none; when this returns they are in `image`, with leaders.

        The other brokers that are well know them, too. Raises `KafkaError` if this broker is not the controller, or the
        tree cannot be reached.
        """
        view = self.view
        results = await self.do(
            lambda controller: topic_jobs.create_partitions(controller, view, wanted, validate_only=validate_only)
        )
        await self._tell_everybody()
        return results

    async def _tell_everybody(self) -> None:
        """Wait, but not for long, until the other brokers know what this one does."""
        if self._term is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TELLING_S):
                    await self._term.controller.channels.all_acknowledged()

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, items: Mapping[TopicPartition, AlterPartitionItem]
    ) -> dict[TopicPartition, IsrResult]:
        """Change in-sync sets as the leader `broker_id` items, each or not at all; they are in `image` then.

        Raises `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """
        view = self.view
        return await self.do(
            lambda controller: isr_jobs.alter_partitions(controller, view, broker_id, broker_epoch, items)
        )

    async def change_configs(self, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
        """Change configurations, each or not at all; when this returns they are in `image`. Any broker does it.

        Raises `KafkaError` if the tree cannot be reached.
        """

        async def change() -> list[KafkaError | None]:
            results = await write_changes(self._store, changes)
            topics = [each.topic for each in changes if each.topic is not None]
            self.view.mark_configs(topics)
            return results

        return await self._ask(change)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Have others lead what a broker leads that is about to stop, and tell what it still leads then.

        It leads nothing new from now on. Raises `KafkaError` as `controller.shut_down`, and if this broker is not the
        controller, or the tree cannot be reached.
        """
        view = self.view

        async def work(controller: ControllerEpoch) -> tuple[ControlledShutdownPlan, ControllerEpoch]:
            plan = shut_down(
                view.image,
                broker_id,
                broker_epoch,
                shutting_down=controller.shutting_down,
                offline=controller.offline,
                controller_epoch=controller.number,
            )
            controller.channels.context.add_shutting_down(view.image.brokers[broker_id])
            view.follower.mark(topics={change.partition.topic for change in plan.changes})
            await controller.change_states(plan.changes)
            return plan, controller

        plan, controller = await self.do(work)
        controller.channels.stop_following(broker_id, plan.stop)
        return plan.remaining

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        """What is set for a topic that exists: from the tree, where this broker has no replica of it.

        Raises `KafkaError` if the tree cannot be reached.
        """
        try:
            return await self.view.topic_config(topic)
        except OdradekError as error:
            raise as_kafka_error(error) from error

    async def registered_brokers(self) -> Mapping[int, BrokerImage]:
        """All brokers that are registered, by id: those in `image`, and those that are away.

        Raises `KafkaError` if the tree cannot be reached.
        """
        try:
            return {**await read_registrations(self._store, BrokenNodes()), **self.image.brokers}
        except OdradekError as error:
            raise as_kafka_error(error) from error

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that is away. Any broker does it.

        Raises `KafkaError` as `registration.unregister`, and if the tree cannot be reached.
        """
        try:
            await unregister(self._store, broker_id)
        except OdradekError as error:
            raise as_kafka_error(error) from error

    def update_config(self, config: BrokerConfig) -> None:
        """Let another configuration of this broker hold from now on; `on_image` calls it."""
        self.view.config = config

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody has had and nobody will have. Raises the store's errors."""
        path = paths.LATEST_PRODUCER_ID_BLOCK
        while True:
            node = await self._store.get(path)
            if node is None:
                raise NoNode(path)
            latest = ProducerIdBlockNode.decode(path, node.data) if node.data else None
            block = next_producer_id_block(latest, self.broker_id)
            try:
                await self._store.set(path, block.encode(), node.version)
            except BadVersion:
                continue
            return range(block.first, block.last + 1)

    async def _ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have the task do `work` in its turn, and bring the image up to date before the answer."""

        async def job() -> T:
            result = await work()
            await self._settle()
            return result

        if self._task is None or self._task.done():
            raise KafkaError(ErrorCode.not_controller)
        return await self._jobs.submit(job)

    # ---- the task -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """The task. What fails is tried again, slower each time: nothing here may end but by `stop`."""
        delay_s = _FIRST_RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._settle()
                await self._jobs.run_all(deposed=self._step_down)
                delay_s = _FIRST_RETRY_S
                continue
            except OdradekError as error:
                _log.warning("%s; trying again in %.2f s", error, delay_s)
                self._jobs.fail_all(as_kafka_error(error))
            except Exception:
                _log.exception("the controller shell failed; trying again in %.2f s", delay_s)
            await self._fence.pause(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_RETRY_S)
            self.view.mark_all()

    async def _settle(self) -> None:
        """Bring the image up to date and do the controller's duties, until there is nothing left to do."""
        while True:
            try:
                await self._look()
                if self._term is None or not self._fence.check() or not await self._term.run():
                    return
            except (ControllerMovedError, SessionExpired) as error:
                _log.warning("broker %d: %s", self.broker_id, error)
                self._step_down()

    async def _look(self) -> None:
        """Take part in the cluster as a live session does, and publish what it looks like."""
        view = self.view
        if await self._membership.renew():
            self._step_down()
            view.mark_all()
        session = self._membership.session
        is_alive = self._fence.is_alive(session)
        if not is_alive:
            self._fence.notify_again()
        elif view.is_election_due:
            view.is_election_due = False
            await self._elect()
        old = view.image
        await view.refresh()
        if self._term is not None:
            self._term.notice(old, view.image)
        if self._term is not None or self.command_handler.is_initialized:
            self._fence.open_for(session, was_alive=is_alive)
            self._joined.set()

    async def _elect(self) -> None:
        """Find out whether this broker is the controller, and become it if nobody is."""
        node = await self._store.get(paths.CONTROLLER)
        if node is not None and node.owner == self._store.session_id:
            if self._term is not None:
                return
            # A term of this very session that was given up after an error: begin another one.
            with suppress(NoNode, BadVersion):
                await self._store.delete(paths.CONTROLLER, node.version)
        claimed = None
        with suppress(BrokenNodeError):  # nobody is elected until the epoch can be read; `follower` names it in the log
            claimed = await register_controller(self._store, self.broker_id, self._runtime.clock.now_ms())
        self._end_term()
        # The tree is read anew by whoever is elected again: another controller may have been there, and states of
        # partitions, which only a controller writes, are not watched.
        self.view.follow_tree(enabled=False)
        if claimed is not None:
            epoch, version = claimed
            _log.info("broker %d is the controller of epoch %d", self.broker_id, epoch)
            channels = ControllerChannelManager(
                self.view, self._replicas, self._runtime, epoch=epoch, on_response=self._wake.set
            )
            controller = ControllerEpoch(
                self._store, self._runtime.entropy, channels, epoch=epoch, epoch_version=version
            )
            self.view.follow_tree(enabled=True)
            self._term = Term(controller, self.view)
        self.view.have_controller_read()

    def _give_up(self) -> None:
        """The fence has closed: what is known may be old, and somebody else may be the controller."""
        self._step_down()
        self.view.mark_all()

    def _step_down(self) -> None:
        self._end_term()
        self.view.mark_controller()

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._term = None
