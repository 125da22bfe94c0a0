"""Tells the controller that logs here can't be used any more, as Kafka's brokers did with ZooKeeper (KIP-112).

That they can be used again is told in the same way.

```
a log stops ──► /log_dir_event_notification/log_dir_event_… ──► the controller asks this broker for all its logs
```
The node says which broker, and not which logs: the answer to LeaderAndIsr does, and has those that stopped meanwhile.
"""

import asyncio
import logging
from typing import Final

from odradek.metadata import paths
from odradek.metadata.nodes import LogDirEventNode
from odradek.metadata.store import Store
from odradek.model import OdradekError

_PAUSE_S: Final = 0.5
"""When a disk fails, one log after the other finds out: the first is told at once, the others together."""
_LONGEST_PAUSE_S: Final = 5.0
_log = logging.getLogger("odradek.broker")


class LogDirEvents:
    """One broker's; `notice` is called on the event loop for every log that stops, or can be used again."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._node = LogDirEventNode(broker_id=broker_id)
        self._is_pending = False
        self._has_stopped = False
        self._task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """A log can't be used any more, or can be again."""
        self._is_pending = True
        if self._task is None and not self._has_stopped:
            name = f"telling of failed logs of broker {self._node.broker_id}"
            self._task = asyncio.get_running_loop().create_task(self._notify(), name=name)

    async def _notify(self) -> None:
        """Tell until there is nothing new; what could not be told is told again. Twice does no harm."""
        pause_s = _PAUSE_S
        try:
            while self._is_pending:
                self._is_pending = False
                try:
                    await self._store.create(paths.log_dir_event(), self._node.encode(), sequence=True)
                    pause_s = _PAUSE_S
                except OdradekError as error:
                    _log.warning("the controller does not know yet which logs can be used: %s", error)
                    self._is_pending = True
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s)
        finally:
            self._task = None

    def stop(self) -> None:
        """Tell nothing more."""
        self._has_stopped = True
        if self._task is not None:
            self._task.cancel()
