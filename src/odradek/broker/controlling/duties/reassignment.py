"""Reassignments, from the wish in `/admin/reassign_partitions` or a request to the end, step by step."""

import logging

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.active_controller import ActiveController
from odradek.broker.controlling.duties import Duty
from odradek.broker.controlling.duties.wishes import WishNode
from odradek.controller import ReassignmentWishes, advance, plan_reassignments
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ReassignPartitionsNode

_log = logging.getLogger("odradek.broker")


class ReassignmentDuty(Duty):
    """Looks at topics that changed, and at all of them when brokers did; leaders of dead brokers are elected before."""

    def __init__(self, controller: ActiveController, view: ClusterView) -> None:
        super().__init__(controller, view)
        self._unchecked = set(view.image.topics)
        self._node = WishNode(view, paths.REASSIGN_PARTITIONS, ReassignPartitionsNode.decode)

    def notice(self, old: ClusterImage, new: ClusterImage) -> None:
        """See `Duty`."""
        self._unchecked.update(new.topics if new.brokers != old.brokers else new.changed_topics(old))

    async def perform(self) -> bool:
        """See `Duty`."""
        return await self._grant() or await self._advance()

    def end(self) -> None:
        """See `Duty`."""
        self._node.end()

    async def _grant(self) -> bool:
        """Begin what the node asks for, and take away its entries that are done or can't be."""
        wished = await self._node.read()
        if wished is None:
            return False
        node, version = wished
        wishes, image = ReassignmentWishes(node=node, version=version), self.view.image
        plan = plan_reassignments(image, wishes.to_begin(image), controller_epoch=self.controller.epoch)
        for step in plan.steps:
            self.view.follower.mark(topics=(step.topic,))
            await self.controller.write(step.operations)
        for error in plan.errors.values():
            _log.error("an entry of %s is dropped: %s", paths.REASSIGN_PARTITIONS, error)
        gone = wishes.without((*plan.errors, *wishes.done(image)))
        if gone is not None:
            await self._node.write(self.controller, gone)
        return bool(plan.steps) or gone is not None

    async def _advance(self) -> bool:
        """Take the next step of each topic; who loses a replica deletes it before the tree forgets that."""
        view, controller = self.view, self.controller
        live = view.image.brokers.keys() - controller.shutting_down
        is_changed = False
        for name in sorted(self._unchecked):
            topic = view.image.topics.get(name)
            step = None if topic is None else advance(topic, live, controller.epoch)
            if step is not None and not controller.commands.stopped(step.stop):
                continue
            if step is not None:
                view.follower.mark(topics=(name,))
                await controller.write(step.operations)
                is_changed = True
            self._unchecked.discard(name)
        return is_changed
