"""The controller's own tasks; `controller.controller` runs them in order.

A task's inputs are the image and the `ControllerContext`. It writes the tree through the `ControllerEpoch`; the
metadata loop then publishes the new image, and `controller_channel_manager` sends it to the other brokers.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar
from uuid import UUID

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.metadata.image_updates import EPOCH_DURING_DELETE
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine.elections import balance_preferred_leaders, plan_preferred_elections
from odradek.broker.controller.machine.reassignment import (
    ReassignPartitionsRequest,
    StopReplicas,
    advance,
    plan_reassignments,
)
from odradek.broker.controller.machine.topic_creation import needs_initialization
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, MetadataDelta
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import LogDirEventNode, PreferredReplicaElectionNode, ReassignPartitionsNode
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.metadata.store import BadVersion, Delete, NoNode, SetData
from odradek.model import TopicPartition


class ControllerTask(ABC):
    """A task of one controller epoch; at first it treats the whole image as changed."""

    def __init__(self, epoch: ControllerEpoch) -> None:
        self.epoch = epoch
        self.view = epoch.view

    @abstractmethod
    async def run(self) -> None:
        """Do what `view.image` requires. After a write the tasks run again, with the new image.

        Raises `ControllerMovedError`, and the store's errors.
        """

    def image_changed(self, delta: MetadataDelta) -> None:  # noqa: B027 - most need not know
        """Note what has changed between the last image and the new one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End watches and timers when the epoch is over."""


T = TypeVar("T")


class RequestNode(Generic[T]):
    """A node that is watched, and read again after a change. A node that cannot be decoded is logged, and stays."""

    def __init__(self, view: ClusterView, path: str, decode: Callable[[str, bytes], T]) -> None:
        self._path = path
        self._decode = decode
        self._view = view
        self._broken = BrokenNodes()
        self._found: tuple[T, int] | None = None
        self._is_changed = True
        self._watch = view.store.watch_data(path, self._node_changed)

    async def read(self) -> tuple[T, int] | None:
        """Return `(request, version of the node)`, or `None` if there is no request. Raises the store's errors."""
        while self._is_changed:
            self._is_changed = False
            try:
                node = await self._view.store.get(self._path)
            except BaseException:
                self._is_changed = True
                raise
            self._found = None
            if node is not None:
                try:
                    self._found = self._decode(self._path, node.data), node.version
                except BrokenNodeError as error:
                    self._broken.report(error, node)
        return self._found

    async def write(self, epoch: ControllerEpoch, operation: SetData | Delete) -> None:
        """Update or delete the node, unless it was changed concurrently. The next `read` reads it again."""
        self._is_changed = True
        try:
            await epoch.write([operation])
        except (BadVersion, NoNode) as error:
            if error.path != self._path:
                raise

    def close(self) -> None:
        self._watch.cancel()

    def _node_changed(self) -> None:
        self._is_changed = True
        self._view.wake()


class LeaderElectionTask(ControllerTask):
    """Writes the initial states of partitions, and elects leaders when brokers or logs fail or return.

    Checks changed topics, and all topics after a change of brokers or of the broker configuration. An old tool that
    changes a topic writes its node without the topic id (KAFKA-14190). The task restores the id; otherwise brokers
    would treat their logs as another topic's.
    """

    def __init__(self, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self._unchecked = set(self.view.image.topics)
        self._config = self.view.config
        self._ids: dict[str, UUID] = {}
        """The former ids of topics whose nodes have lost them."""

    def image_changed(self, delta: MetadataDelta) -> None:
        self._unchecked.update(delta.topics_to_check)
        for name in delta.topics:
            before, topic = delta.old.topics.get(name), delta.new.topics.get(name)
            if before is None or topic is None or topic.topic_id != UNNAMED or before.topic_id == UNNAMED:
                continue
            if any(partition.is_readable for partition in topic.partitions.values()):
                self._ids[name] = before.topic_id

    async def run(self) -> None:
        """Write missing initial states, then elect leaders, in the topics to check."""
        view, image = self.view, self.view.image
        if view.config is not self._config:
            self._config = view.config
            self._unchecked.update(image.topics)
        self._unchecked |= self.epoch.context.take_changed()
        topics = [image.topics[name] for name in sorted(self._unchecked) if name in image.topics]
        for topic in topics:
            if needs_initialization(topic):
                await self.epoch.initialize(topic, topic_id=self._ids.get(topic.name))
        await self.epoch.elect_leaders(topics)
        self._unchecked.clear()
        self._ids.clear()


class LogDirEventTask(ControllerTask):
    """Processes `/log_dir_event_notification`, where brokers report that logs went offline or came back.

    It requests the state of all logs of such a broker; the response has KAFKA_STORAGE_ERROR for offline logs, and other
    leaders are elected. The nodes are deleted before the responses come: if this controller dies, the next one requests
    the state of all logs in any case. A node that cannot be decoded is logged, and stays.
    """

    def __init__(self, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self._broken = BrokenNodes()
        self._is_changed = True
        self._watch = self.view.store.watch_children(paths.LOG_DIR_EVENT_NOTIFICATION, self._node_changed)

    async def run(self) -> None:
        """Request log states for new notifications; the responses cause elections later."""
        if self._is_changed:
            self._is_changed = False
            try:
                await self._request_log_states()
            except BaseException:
                self._is_changed = True
                raise

    async def _request_log_states(self) -> None:
        events = await self._read()
        for broker_id in sorted(set(events.values())):
            await self.epoch.channels.request_log_states(broker_id)
        for path in events:
            with suppress(NoNode):
                await self.epoch.write([Delete(path=path)])

    async def _read(self) -> dict[str, int]:
        """Return the broker id of each node, by path."""
        store, root = self.view.store, paths.LOG_DIR_EVENT_NOTIFICATION
        try:
            names = [paths.child(root, name) for name in await store.children(root)]
        except NoNode:
            return {}
        events = {}
        for path, node in zip(names, await store.get_many(names), strict=True):
            if node is not None:
                try:
                    events[path] = LogDirEventNode.decode(path, node.data).broker_id
                except BrokenNodeError as error:
                    self._broken.report(error, node)
        return events

    def close(self) -> None:
        self._watch.cancel()

    def _node_changed(self) -> None:
        self._is_changed = True
        self.view.wake()


_log = logging.getLogger("odradek.broker")


class PreferredReplicaElectionTask(ControllerTask):
    """Holds the elections that tools request in `/admin/preferred_replica_election`, then removes the node.

    If the controller dies in between, the next one repeats them.
    """

    def __init__(self, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self._node = RequestNode(self.view, paths.PREFERRED_REPLICA_ELECTION, PreferredReplicaElectionNode.decode)

    async def run(self) -> None:
        """Hold the elections that the node requests, then remove the node."""
        requested = await self._node.read()
        if requested is None:
            return
        node, version = requested
        changes, errors, end = plan_preferred_elections(self.view.image, node, version, self.epoch.election_context())
        for error in errors:
            _log.warning("refused an election requested in %s: %s", paths.PREFERRED_REPLICA_ELECTION, error)
        await self.epoch.change_states(changes)
        await self._node.write(self.epoch, end)

    def close(self) -> None:
        self._node.close()


class ReassignmentTask(ControllerTask):
    """Runs reassignments step by step, and begins those that tools write to `/admin/reassign_partitions`.

    Checks changed topics, and all topics after a change of brokers. Runs after `LeaderElectionTask`.
    """

    def __init__(self, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self._unchecked = set(self.view.image.topics)
        self._node = RequestNode(self.view, paths.REASSIGN_PARTITIONS, ReassignPartitionsNode.decode)

    def image_changed(self, delta: MetadataDelta) -> None:
        self._unchecked.update(delta.topics_to_check)

    async def run(self) -> None:
        """Begin requested reassignments; if nothing changed, take the next step of those in progress."""
        if not await self._begin_requested():
            await self._advance()

    def close(self) -> None:
        self._node.close()

    async def _begin_requested(self) -> bool:
        """Begin the reassignments that the node requests, and remove completed or invalid entries from it."""
        requested = await self._node.read()
        if requested is None:
            return False
        node, version = requested
        items, image = ReassignPartitionsRequest(node=node, version=version), self.view.image
        plan = plan_reassignments(image, items.to_begin(image), controller_epoch=self.epoch.number)
        for step in plan.steps:
            await self.epoch.write(step.operations)
        for error in plan.errors.values():
            _log.error("an entry of %s is dropped: %s", paths.REASSIGN_PARTITIONS, error)
        gone = items.without((*plan.errors, *items.completed(image)))
        if gone is not None:
            await self._node.write(self.epoch, gone)
        return bool(plan.steps) or gone is not None

    async def _advance(self) -> None:
        """Take the next step of each topic. Partitions wait until brokers have deleted the replicas that leave them."""
        view, epoch = self.view, self.epoch
        live = view.image.brokers.keys() - epoch.context.shutting_down
        late: set[str] = set()

        def is_stopped(stop: StopReplicas) -> bool:
            if epoch.channels.ensure_stopped([stop]):
                return True
            late.add(stop.partition.topic)
            return False

        for name in sorted(self._unchecked):
            topic = view.image.topics.get(name)
            step = None if topic is None else advance(topic, live, epoch.number, is_stopped=is_stopped)
            if topic is not None and step is not None:
                notes = await epoch.missed_deletions(topic, step.stop)
                await epoch.write([*step.operations, *notes])
            if name not in late:
                self._unchecked.discard(name)


_FIRST_S: Final = 5
"""The delay after the controller's election, as in Kafka: it lets brokers that start together register."""


class PreferredLeaderBalancer(ControllerTask):
    """Makes preferred replicas leaders again (`auto.leader.rebalance.enable`).

    Checks the balance every `leader.imbalance.check.interval.seconds`.
    """

    def __init__(self, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self._is_due = False
        self._timer = self._after(_FIRST_S)

    async def run(self) -> None:
        """Elect preferred leaders if the check is due and the configuration allows it."""
        if not self._is_due:
            return
        self._is_due = False
        view, config = self.view, self.view.config
        self._timer = self._after(config.leader_imbalance_check_interval_seconds)
        if not config.auto_leader_rebalance_enable:
            return
        percentage = config.leader_imbalance_per_broker_percentage
        changes = list(balance_preferred_leaders(view.image, percentage, self.epoch.election_context()))
        if changes:
            _log.info("%d partitions are led by their preferred replicas again", len(changes))
        await self.epoch.change_states(changes)

    def close(self) -> None:
        self._timer.cancel()

    def _after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._set_due)

    def _set_due(self) -> None:
        self._is_due = True
        self.view.wake()


class TopicDeletionTask(ControllerTask):
    """Deletes topics once their replicas are deleted."""

    async def run(self) -> None:
        """Delete requested topics whose replicas are deleted; remove requests if `delete.topic.enable` is false."""
        watcher, epoch = self.view.watcher, self.epoch
        if watcher.listed_deletions is not None:
            names, version = watcher.listed_deletions
            await epoch.request_deletions(names, listed_version=version)
        elif watcher.requested_deletions and not self.view.config.delete_topic_enable:
            await epoch.refuse_deletions(watcher.requested_deletions)
        else:
            stopped = [name for name in sorted(watcher.requested_deletions) if await self._is_deleted_on_brokers(name)]
            for name in stopped:
                await epoch.delete_topic(name)

    async def _is_deleted_on_brokers(self, name: str) -> bool:
        """Return whether no live broker has replicas of the topic; stop them on brokers that have some."""
        topic = (await read_topics(self.view.store, [name], BrokenNodes())).get(name)
        partitions = {} if topic is None else topic.partitions
        stops = [
            StopReplicas(
                partition=TopicPartition(name, number), brokers=partition.replicas, leader_epoch=EPOCH_DURING_DELETE
            )
            for number, partition in partitions.items()
        ]
        await self.epoch.channels.delete_own(stops)
        return self.epoch.channels.ensure_stopped(stops)
