"""Preferred elections that tools ask for in `/admin/preferred_replica_election`."""

import logging

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.active_controller import ActiveController
from odradek.broker.controlling.duties import Duty
from odradek.broker.controlling.duties.wishes import WishNode
from odradek.controller import grant_elections
from odradek.metadata import paths
from odradek.metadata.nodes import PreferredReplicaElectionNode

_log = logging.getLogger("odradek.broker")


class PreferredElectionDuty(Duty):
    """Holds the elections, then removes the node: a controller that dies in between leaves it to the next one."""

    def __init__(self, controller: ActiveController, view: ClusterView) -> None:
        super().__init__(controller, view)
        self._node = WishNode(view, paths.PREFERRED_REPLICA_ELECTION, PreferredReplicaElectionNode.decode)

    async def perform(self) -> bool:
        """See `Duty`."""
        wished = await self._node.read()
        if wished is None:
            return False
        node, version = wished
        changes, errors, end = grant_elections(
            self.view.image,
            node,
            version,
            shutting_down=self.controller.shutting_down,
            offline=self.controller.offline,
            controller_epoch=self.controller.epoch,
        )
        for error in errors:
            _log.warning("an election that %s asks for is not held: %s", paths.PREFERRED_REPLICA_ELECTION, error)
        self.view.follower.mark(topics={change.partition.topic for change in changes})
        await self.controller.change_states(changes)
        await self._node.write(self.controller, end)
        return True

    def end(self) -> None:
        """See `Duty`."""
        self._node.end()
