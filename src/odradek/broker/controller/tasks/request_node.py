"""Reads and updates a node in which old tools write requests, such as `/admin/reassign_partitions`."""

from collections.abc import Callable
from typing import Generic, TypeVar

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.reading import BrokenNodes
from odradek.metadata.store import BadVersion, Delete, NoNode, SetData

T = TypeVar("T")


class RequestNode(Generic[T]):
    """A node that is watched, and read again after a change. A node that cannot be decoded is logged, and stays."""

    def __init__(self, view: ClusterView, path: str, decode: Callable[[str, bytes], T]) -> None:
        self._path = path
        self._decode = decode
        self._view = view
        self._broken = BrokenNodes()
        self._found: tuple[T, int] | None = None
        self._is_changed = True
        self._watch = view.store.watch_data(path, self._node_changed)

    async def read(self) -> tuple[T, int] | None:
        """Return `(request, version of the node)`, or `None` if there is no request. Raises the store's errors."""
        while self._is_changed:
            self._is_changed = False
            try:
                node = await self._view.store.get(self._path)
            except BaseException:
                self._is_changed = True
                raise
            self._found = None
            if node is not None:
                try:
                    self._found = self._decode(self._path, node.data), node.version
                except BrokenNodeError as error:
                    self._broken.report(error, node)
        return self._found

    async def write(self, epoch: ControllerEpoch, operation: SetData | Delete) -> None:
        """Update or delete the node, unless it was changed concurrently. The next `read` reads it again."""
        self._is_changed = True
        try:
            await epoch.write([operation])
        except (BadVersion, NoNode) as error:
            if error.path != self._path:
                raise

    def close(self) -> None:
        self._watch.cancel()

    def _node_changed(self) -> None:
        self._is_changed = True
        self._view.wake()
