"""One broker's time as controller: what it writes with, what it has to see to, and how it tells the others."""

from typing import Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.active_controller import ActiveController
from odradek.broker.controlling.duties import Duty
from odradek.broker.controlling.duties.deletion import DeletionDuty
from odradek.broker.controlling.duties.failed_logs import FailedLogsDuty
from odradek.broker.controlling.duties.leadership import LeadershipDuty
from odradek.broker.controlling.duties.preferred_election import PreferredElectionDuty
from odradek.broker.controlling.duties.reassignment import ReassignmentDuty
from odradek.broker.controlling.duties.rebalance import RebalanceDuty
from odradek.metadata.image import ClusterImage

DUTIES: Final[tuple[type[Duty], ...]] = (
    DeletionDuty,
    FailedLogsDuty,
    LeadershipDuty,
    PreferredElectionDuty,
    ReassignmentDuty,
    RebalanceDuty,
)
"""In the order in which they are seen to: what the first of them changes is read before the next begins."""


class Term:
    """From the election until `end`. `controller` fences every write by the term's epoch."""

    def __init__(self, controller: ActiveController, view: ClusterView) -> None:
        self.controller = controller
        self._duties = [duty(controller, view) for duty in DUTIES]
        self._told: ClusterImage | None = None

    def notice(self, old: ClusterImage, new: ClusterImage) -> None:
        """Another image was published, or the first of this term."""
        if self._told is new:
            return
        self._told = new
        for duty in self._duties:
            duty.notice(old, new)
        self.controller.commands.notice(old, new)

    async def perform(self) -> bool:
        """Do what is due. True if the tree was changed, so that there may be more to do."""
        for duty in self._duties:
            if await duty.perform():
                return True
        return False

    def end(self) -> None:
        """Somebody else is the controller, or nobody."""
        self.controller.commands.end()
        for duty in self._duties:
            duty.end()
