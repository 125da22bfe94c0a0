"""The controller's own tasks, one file each; `controlling.controller` runs all of them.

`leader_election` writes the first states of partitions, and elects leaders when brokers or logs come and go.
`preferred_replica_election` holds the elections that old tools request in the tree, `preferred_leader_balancer` those
of `auto.leader.rebalance.enable`; those of ElectLeaders are in `controlling.partition_jobs`. `reassignment` moves
replicas step by step, and `topic_deletion` deletes topics. `log_dir_events` processes the notifications that brokers
write by `broker.cluster.log_dir_events`. `request_node` is a node in which old tools write requests.

A task decides from the tree, and from the shutdowns and unusable logs in `controlling.controller_context`. It writes
the tree through the `ControllerEpoch`; the metadata loop then reads and publishes the new image, and the channels send
it to the other brokers. The next controller finishes what this one leaves half done.
"""

from abc import ABC, abstractmethod

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controlling.controller_epoch import ControllerEpoch
from odradek.metadata.image import ClusterImage


class ControllerTask(ABC):
    """A task of one controller epoch. It treats everything in its first image as new."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        self.epoch = epoch
        self.view = view

    @abstractmethod
    async def run(self) -> bool:
        """Do what is due by `view.image`, and return whether the tree was changed, so that there may be more to do.

        The task marks what it changed at `view.watcher`, which reads it again. Raises `ControllerMovedError`, and the
        store's errors.
        """

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:  # noqa: B027 - most need not know
        """Compare the published image with the one before."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End watches and timers: the epoch is over."""
