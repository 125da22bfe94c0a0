"""The task of `auto.leader.rebalance.enable`: makes preferred replicas leaders again."""

import asyncio
import logging
from typing import Final

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import balance_preferred_leaders
from odradek.broker.controller.tasks import ControllerTask

_FIRST_S: Final = 5
"""The delay after the controller's election, as in Kafka: it lets brokers that start together register."""
_log = logging.getLogger("odradek.broker")


class PreferredLeaderBalancer(ControllerTask):
    """Checks the balance of leaders every `leader.imbalance.check.interval.seconds`."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._is_due = False
        self._timer = self._after(_FIRST_S)

    async def run(self) -> bool:
        """Elect preferred leaders if the check is due and the configuration allows it."""
        if not self._is_due:
            return False
        self._is_due = False
        view, config = self.view, self.view.config
        self._timer = self._after(config.leader_imbalance_check_interval_seconds)
        if not config.auto_leader_rebalance_enable:
            return False
        changes = list(
            balance_preferred_leaders(
                view.image,
                config.leader_imbalance_per_broker_percentage,
                shutting_down=self.epoch.context.shutting_down,
                offline=self.epoch.context.offline,
                controller_epoch=self.epoch.number,
            )
        )
        if changes:
            _log.info("%d partitions are led by their preferred replicas again", len(changes))
        view.watcher.mark(topics={change.partition.topic for change in changes})
        await self.epoch.change_states(changes)
        return bool(changes)

    def close(self) -> None:
        self._timer.cancel()

    def _after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._set_due)

    def _set_due(self) -> None:
        self._is_due = True
        self.view.wake()
