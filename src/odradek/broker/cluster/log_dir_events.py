"""Notifies the controller that logs went offline or came back, as in Kafka with ZooKeeper (KIP-112).

```
a log fails ──► /log_dir_event_notification/log_dir_event_… ──► the controller requests the state of all logs
```
The node names only the broker; the UpdateMetadata response names the logs.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from odradek.broker.retrying_sender import RetryingSender
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
        name = f"log directory events of broker {broker_id}"
        self._sender = RetryingSender[deque[LogDirEventNode]](
            name, deque(maxlen=1), self._notify, first_backoff_s=2 * _PAUSE_S, longest_backoff_s=_LONGEST_PAUSE_S
        )

    def notify(self) -> None:
        """Notify the controller that a log went offline or came back. Call it on the event loop."""
        self._sender.waiting.append(self._node)
        self._sender.wake()

    async def _notify(self, waiting: deque[LogDirEventNode]) -> bool:
        """Write a node for all notifications since the last one; after a failure, try again until a write succeeds."""
        node = waiting.popleft()
        try:
            await self._store.create(paths.log_dir_event(), node.encode(), sequence=True)
        except OdradekError as error:
            _log.warning("Failed to notify the controller of a log directory event, retrying: %s", error)
            waiting.append(node)
            return False
        await asyncio.sleep(_PAUSE_S)
        return True

    def stop(self) -> None:
        self._sender.close()
