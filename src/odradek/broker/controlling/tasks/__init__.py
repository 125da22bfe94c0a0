"""What the controller sees to as long as its term lasts; one file for each duty, and `term` has all of them.

A duty decides from the image and writes the tree through the term's `ControllerEpoch`; the new image is read and
published by the shell, and tells the other brokers what changed. Since a duty goes by the tree alone, the next
controller finishes whatever this one leaves half done.
"""

from abc import ABC, abstractmethod

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.controller_epoch import ControllerEpoch
from odradek.metadata.image import ClusterImage


class ControllerTask(ABC):
    """One term's; made when it begins, of which the duty is told nothing more: what there is by then is all new."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        self.epoch = epoch
        self.view = view

    @abstractmethod
    async def run(self) -> bool:
        """Do what is due by `view.image`. True if the tree was changed, so that there may be more to do.

        What changed is marked at `view.follower`, which reads it again. Raises `ControllerMovedError`, and the store's
        errors.
        """

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:  # noqa: B027 - most need not know
        """Another image was published."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """The term is over."""
