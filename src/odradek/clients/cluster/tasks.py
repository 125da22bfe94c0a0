"""The tasks of one client, all in one event loop."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from odradek.model import OdradekError, UnavailableError

_log = logging.getLogger("odradek.clients")


class UnusableClientError(UnavailableError):
    """The client was closed, or is used in another event loop than the one that started it."""

    retriable = False


class ClientTasks:
    """The tasks of a client from its first use until `close`."""

    def __init__(self) -> None:
        self.closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the first use."""

    def check_usable(self) -> None:
        """Raise `UnusableClientError` after `close`, and in another event loop than that of the first use."""
        if self.closed:
            raise UnusableClientError("the client was closed: create another one")
        self._check_loop()

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise UnusableClientError("the client was started in another event loop: create a client in this one")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Create a task that `close` cancels; log its failure, unless it is an `OdradekError`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OdradekError):
            _log.error("%s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel all tasks and wait for them. Raises `UnusableClientError` in the wrong event loop."""
        self._check_loop()
        self.closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
