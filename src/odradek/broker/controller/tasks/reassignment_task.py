"""The task that runs reassignments step by step, and begins those that tools write to `/admin/reassign_partitions`."""

import logging

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import ReassignPartitionsRequest, advance, plan_reassignments
from odradek.broker.controller.tasks import ControllerTask
from odradek.broker.controller.tasks.request_node import RequestNode
from odradek.metadata import paths
from odradek.metadata.image import MetadataDelta
from odradek.metadata.nodes import ReassignPartitionsNode

_log = logging.getLogger("odradek.broker")


class ReassignmentTask(ControllerTask):
    """Checks changed topics, and all topics after a change of brokers. Runs after `LeaderElectionTask`."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._unchecked = set(view.image.topics)
        self._node = RequestNode(view, paths.REASSIGN_PARTITIONS, ReassignPartitionsNode.decode)

    def image_changed(self, delta: MetadataDelta) -> None:
        self._unchecked.update(delta.topics_to_check)

    async def run(self) -> bool:
        """Begin requested reassignments; if nothing changed, take the next step of those in progress."""
        return await self._begin_requested() or await self._advance()

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
            self.view.watcher.mark(topics=(step.topic,))
            await self.epoch.write(step.operations)
        for error in plan.errors.values():
            _log.error("an entry of %s is dropped: %s", paths.REASSIGN_PARTITIONS, error)
        gone = items.without((*plan.errors, *items.completed(image)))
        if gone is not None:
            await self._node.write(self.epoch, gone)
        return bool(plan.steps) or gone is not None

    async def _advance(self) -> bool:
        """Take the next step of each topic. A step that removes replicas waits until brokers have deleted them."""
        view, epoch = self.view, self.epoch
        live = view.image.brokers.keys() - epoch.context.shutting_down
        is_changed = False
        for name in sorted(self._unchecked):
            topic = view.image.topics.get(name)
            step = None if topic is None else advance(topic, live, epoch.number)
            if step is not None and not epoch.channels.ensure_stopped(step.stop):
                continue
            if topic is not None and step is not None:
                view.watcher.mark(topics=(name,))
                notes = await epoch.missed_deletions(topic, step.stop)
                await epoch.write([*step.operations, *notes])
                is_changed = True
            self._unchecked.discard(name)
        return is_changed
