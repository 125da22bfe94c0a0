"""The election of the controller: how a broker claims `/controller`, and the arguments of the new controller.

Every broker tries to become the controller. The controller itself is in `broker.controller`.
"""

from collections.abc import Awaitable, Callable, Set
from typing import Protocol, TypeVar

from msgspec import Struct

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.registration.fencing import Fence
from odradek.metadata import paths
from odradek.metadata.image import MetadataDelta
from odradek.metadata.nodes import ControllerNode, decode_integer, encode_integer
from odradek.metadata.store import BadVersion, Create, NodeExists, SetData, Store
from odradek.model import OdradekError
from odradek.model.probes import probe

T = TypeVar("T")


class RunInTurn(Protocol):
    """The metadata loop's queue of jobs."""

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in the metadata loop, then update the image, and return the result of `work`."""


class ElectedController(Protocol):
    """The controller, as the metadata loop uses it."""

    @property
    def shutting_down(self) -> Set[int]:
        """Return the brokers that have requested a controlled shutdown."""

    def image_changed(self, delta: MetadataDelta) -> None:
        """Pass a change of the image to the tasks and channels. Called after each refresh."""

    async def run_tasks(self) -> bool:
        """Run the tasks, and return whether the tree was changed, so that they may have more to do."""

    def close(self) -> None:
        """Stop all work, because this broker has resigned or another one was elected."""


class Election(Struct, frozen=True, kw_only=True):
    """The arguments for a new controller; `epoch_version` is the version of the node `/controller_epoch`."""

    epoch: int
    epoch_version: int
    view: ClusterView
    fence: Fence
    run_in_turn: RunInTurn


class ControllerMovedError(OdradekError):
    """Another broker was elected controller; nothing was written."""

    retriable = True


async def register_controller(store: Store, broker_id: int, now_ms: int) -> "tuple[int, int] | None":
    """Become the controller, and return `(epoch, version of its node)`; `None` if another broker is the controller.

    One transaction creates `/controller` and raises the epoch, so that each epoch has one controller. Raises
    `BrokenNodeError` if the epoch cannot be decoded, and the store's errors.
    """
    while await store.get(paths.CONTROLLER) is None:
        node = await store.get(paths.CONTROLLER_EPOCH)
        epoch = 1 if node is None else decode_integer(paths.CONTROLLER_EPOCH, node.data) + 1
        data = encode_integer(epoch)
        claim = ControllerNode(broker_id=broker_id, timestamp_ms=now_ms).encode()
        epoch_operation = (
            Create(path=paths.CONTROLLER_EPOCH, data=data)
            if node is None
            else SetData(path=paths.CONTROLLER_EPOCH, data=data, version=node.version)
        )
        try:
            await store.multi([Create(path=paths.CONTROLLER, data=claim, ephemeral=True), epoch_operation])
        except (NodeExists, BadVersion):
            probe("controller: another broker claims the controller at the same time")
            continue
        return epoch, 0 if node is None else node.version + 1
    return None
