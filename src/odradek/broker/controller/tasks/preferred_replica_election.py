"""The task for preferred elections that tools request in `/admin/preferred_replica_election`."""

import logging

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import plan_preferred_elections
from odradek.broker.controller.tasks import ControllerTask
from odradek.broker.controller.tasks.request_node import RequestNode
from odradek.metadata import paths
from odradek.metadata.nodes import PreferredReplicaElectionNode

_log = logging.getLogger("odradek.broker")


class PreferredReplicaElectionTask(ControllerTask):
    """Holds the elections, then removes the node: if the controller dies in between, the next one repeats them."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._node = RequestNode(view, paths.PREFERRED_REPLICA_ELECTION, PreferredReplicaElectionNode.decode)

    async def run(self) -> bool:
        """Hold the elections that the node requests, then remove the node."""
        requested = await self._node.read()
        if requested is None:
            return False
        node, version = requested
        changes, errors, end = plan_preferred_elections(
            self.view.image,
            node,
            version,
            shutting_down=self.epoch.context.shutting_down,
            offline=self.epoch.context.offline,
            controller_epoch=self.epoch.number,
        )
        for error in errors:
            _log.warning("refused an election requested in %s: %s", paths.PREFERRED_REPLICA_ELECTION, error)
        self.view.watcher.mark(topics={change.partition.topic for change in changes})
        await self.epoch.change_states(changes)
        await self._node.write(self.epoch, end)
        return True

    def close(self) -> None:
        self._node.close()
