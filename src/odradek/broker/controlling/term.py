"""One broker's time as controller: what it writes with, what it has to see to, and how it tells the others."""

from typing import Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.controller_epoch import ControllerEpoch
from odradek.broker.controlling.tasks import ControllerTask
from odradek.broker.controlling.tasks.leader_election import LeaderElectionTask
from odradek.broker.controlling.tasks.log_dir_events import LogDirEventTask
from odradek.broker.controlling.tasks.preferred_leader_balancer import PreferredLeaderBalancer
from odradek.broker.controlling.tasks.preferred_replica_election import PreferredReplicaElectionTask
from odradek.broker.controlling.tasks.reassignment import ReassignmentTask
from odradek.broker.controlling.tasks.topic_deletion import TopicDeletionTask
from odradek.metadata.image import ClusterImage

TASKS: Final[tuple[type[ControllerTask], ...]] = (
    TopicDeletionTask,
    LogDirEventTask,
    LeaderElectionTask,
    PreferredReplicaElectionTask,
    ReassignmentTask,
    PreferredLeaderBalancer,
)
"""In the order in which they are seen to: what the first of them changes is read before the next begins."""


class Term:
    """From the election until `end`. `controller` fences every write by the term's epoch."""

    def __init__(self, controller: ControllerEpoch, view: ClusterView) -> None:
        self.controller = controller
        self._tasks = [task(controller, view) for task in TASKS]
        self._notified: ClusterImage | None = None

    def notice(self, old: ClusterImage, new: ClusterImage) -> None:
        """Another image was published, or the first of this term."""
        if self._notified is new:
            return
        self._notified = new
        for task in self._tasks:
            task.image_changed(old, new)
        self.controller.channels.image_changed(old, new)

    async def run(self) -> bool:
        """Do what is due. True if the tree was changed, so that there may be more to do."""
        for task in self._tasks:
            if await task.run():
                return True
        return False

    def end(self) -> None:
        """Somebody else is the controller, or nobody."""
        self.controller.channels.close()
        for task in self._tasks:
            task.close()
