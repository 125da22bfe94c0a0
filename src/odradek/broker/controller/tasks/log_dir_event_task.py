"""The task for `/log_dir_event_notification`, where brokers report that logs went offline or came back.

It requests the state of all logs of such a broker by UpdateMetadata; the response has KAFKA_STORAGE_ERROR for offline
logs, and other leaders are elected. The nodes are removed before the responses come: if this controller dies, the next
one requests the state of all logs in any case.
"""

from contextlib import suppress

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.tasks import ControllerTask
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import LogDirEventNode
from odradek.metadata.reading import BrokenNodes
from odradek.metadata.store import Delete, NoNode


class LogDirEventTask(ControllerTask):
    """Processes and deletes the notification nodes. A node that cannot be decoded is logged, and stays."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._broken = BrokenNodes()
        self._is_changed = True
        self._watch = view.store.watch_children(paths.LOG_DIR_EVENT_NOTIFICATION, self._node_changed)

    async def run(self) -> bool:
        """Request log states for new notifications. Return False: the responses cause elections later."""
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
        """Return the broker id of each node, by path."""
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
        self._watch.cancel()

    def _node_changed(self) -> None:
        self._is_changed = True
        self.view.wake()
