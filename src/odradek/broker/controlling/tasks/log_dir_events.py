"""Brokers say in `/log_dir_event_notification` that they can't use logs any more; each is asked which these are.

They answer LeaderAndIsr with KAFKA_STORAGE_ERROR, and others are elected. The nodes go when the brokers are asked: a
controller that dies before they have answered leaves nothing behind that the next one, which asks everybody, needs.
"""

from contextlib import suppress

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.controller_epoch import ControllerEpoch
from odradek.broker.controlling.tasks import ControllerTask
from odradek.metadata import paths
from odradek.metadata.nodes import BrokenNodeError, LogDirEventNode
from odradek.metadata.reading import BrokenNodes
from odradek.metadata.store import Delete, NoNode


class LogDirEventTask(ControllerTask):
    """See the module. A broken node is named in the log, and stays."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._broken = BrokenNodes()
        self._is_changed = True
        self._watch = view.store.watch_children(paths.LOG_DIR_EVENT_NOTIFICATION, self._node_changed)

    async def run(self) -> bool:
        """See `ControllerTask`. What it changes is of no interest to other duties; answers are, when they come."""
        if self._is_changed:
            self._is_changed = False
            try:
                await self._request_log_states()
            except BaseException:
                self._is_changed = True
                raise
        return False

    async def _request_log_states(self) -> None:
        events = await self._read()
        for broker_id in sorted(set(events.values())):
            await self.epoch.channels.request_log_states(broker_id)
        for path in events:
            with suppress(NoNode):
                await self.epoch.write([Delete(path=path)])

    async def _read(self) -> dict[str, int]:
        """Which broker each node is of."""
        store, root = self.view.store, paths.LOG_DIR_EVENT_NOTIFICATION
        try:
            names = [paths.child(root, name) for name in await store.children(root)]
        except NoNode:
            return {}
        events = {}
        for path, node in zip(names, await store.get_many(names), strict=True):
            if node is not None:
                try:
                    events[path] = LogDirEventNode.decode(path, node.data).broker_id
                except BrokenNodeError as error:
                    self._broken.report(error, node)
        return events

    def close(self) -> None:
        """See `ControllerTask`."""
        self._watch.cancel()

    def _node_changed(self) -> None:
        self._is_changed = True
        self.view.wake()
