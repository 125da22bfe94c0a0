"""The controller's own tasks, one file each; `controller.controller` runs all of them.

`leader_election` writes the initial states of partitions, and elects leaders when brokers or logs fail or return.
`preferred_replica_election` holds the elections that old tools request in the tree, `preferred_leader_balancer` those
of `auto.leader.rebalance.enable`; those of ElectLeaders are in `controller.partition_jobs`. `reassignment_task`
moves replicas step by step, and `topic_deletion` deletes topics. `log_dir_event_task` processes the notifications of
`broker.cluster.log_dir_events`. `request_node` reads a node in which old tools write requests.

A task's inputs are the image and the `controller.controller_context`. It writes the tree through the
`ControllerEpoch`; the metadata loop then reads and publishes the new image, and the channels send it to the other
brokers.
"""

from abc import ABC, abstractmethod

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.metadata.image import MetadataDelta


class ControllerTask(ABC):
    """A task of one controller epoch; at first it treats the whole image as changed."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        self.epoch = epoch
        self.view = view

    @abstractmethod
    async def run(self) -> bool:
        """Do what `view.image` requires, and return whether the tree was changed, so that there may be more to do.

        An implementation marks its changes at `view.watcher`, which reads them again. Raises `ControllerMovedError`,
        and the store's errors.
        """

    def image_changed(self, delta: MetadataDelta) -> None:  # noqa: B027 - most need not know
        """Note what has changed between the last image and the new one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End watches and timers when the epoch is over."""
