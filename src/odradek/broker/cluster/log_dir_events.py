"""Notifies the controller that logs went offline or came back, as in Kafka with ZooKeeper (KIP-112).

```
a log fails ──► /log_dir_event_notification/log_dir_event_… ──► the controller requests the state of all logs
```
The node names only the broker; the UpdateMetadata response names the logs.
"""

import asyncio
import logging
from typing import Final

from odradek.metadata import paths
from odradek.metadata.nodes import LogDirEventNode
from odradek.metadata.store import Store
from odradek.model import OdradekError

_PAUSE_S: Final = 0.5
"""The pause after a notification. The logs of a failed disk fail one by one, and share the next notification."""
_LONGEST_PAUSE_S: Final = 5.0
_log = logging.getLogger("odradek.broker")


class LogDirEvents:
    """One broker's notifications."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._node = LogDirEventNode(broker_id=broker_id)
        self._is_pending = False
        self._has_stopped = False
        self._task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Notify the controller that a log went offline or came back. Call it on the event loop."""
        self._is_pending = True
        if self._task is None and not self._has_stopped:
            name = f"log directory events of broker {self._node.broker_id}"
            self._task = asyncio.get_running_loop().create_task(self._notify(), name=name)

    async def _notify(self) -> None:
        """Write a node for all notifications since the last one; after a failure, try again until a write succeeds."""
        pause_s = _PAUSE_S
        try:
            while self._is_pending:
                self._is_pending = False
                try:
                    await self._store.create(paths.log_dir_event(), self._node.encode(), sequence=True)
                    pause_s = _PAUSE_S
                except OdradekError as error:
                    _log.warning("Failed to notify the controller of a log directory event, retrying: %s", error)
                    self._is_pending = True
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s)
        finally:
            self._task = None

    def stop(self) -> None:
        self._has_stopped = True
        if self._task is not None:
            self._task.cancel()
