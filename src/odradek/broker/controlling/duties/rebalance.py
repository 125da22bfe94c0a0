"""Leaders go back to the preferred replicas by themselves, when brokers lead too little of what they should."""

import asyncio
import logging
from typing import Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.active_controller import ActiveController
from odradek.broker.controlling.duties import Duty
from odradek.controller import rebalance

_FIRST_S: Final = 5
"""After an election of a controller, as in Kafka: brokers that start together are all there by then."""
_log = logging.getLogger("odradek.broker")


class RebalanceDuty(Duty):
    """`auto.leader.rebalance.enable`, looked after every `leader.imbalance.check.interval.seconds`."""

    def __init__(self, controller: ActiveController, view: ClusterView) -> None:
        super().__init__(controller, view)
        self._is_due = False
        self._timer = self._after(_FIRST_S)

    async def perform(self) -> bool:
        """See `Duty`."""
        if not self._is_due:
            return False
        self._is_due = False
        view, config = self.view, self.view.config
        self._timer = self._after(config.leader_imbalance_check_interval_seconds)
        if not config.auto_leader_rebalance_enable:
            return False
        changes = list(
            rebalance(
                view.image,
                config.leader_imbalance_per_broker_percentage,
                shutting_down=self.controller.shutting_down,
                offline=self.controller.offline,
                controller_epoch=self.controller.epoch,
            )
        )
        if changes:
            _log.info("%d partitions are led by their preferred replicas again", len(changes))
        view.follower.mark(topics={change.partition.topic for change in changes})
        await self.controller.change_states(changes)
        return bool(changes)

    def end(self) -> None:
        """See `Duty`."""
        self._timer.cancel()

    def _after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._come_due)

    def _come_due(self) -> None:
        self._is_due = True
        self.view.wake()
