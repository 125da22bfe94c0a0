"""Sends requests to one receiver: one in flight, and the next one has all that gathers meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

WaitingT = TypeVar("WaitingT")
FIRST_BACKOFF_S: Final = 0.05
LONGEST_BACKOFF_S: Final = 1.0
_log = logging.getLogger("odradek.broker")


class RetryingSender(Generic[WaitingT]):
    """A sender to one receiver. Its owner adds to `waiting`, which is false if nothing waits, and calls `wake`.

    `send` takes from `waiting` what fits into a request, and returns whether to go on at once; otherwise the sender
    calls `pause` first, with a back-off that doubles each time.
    """

    def __init__(
        self,
        name: str,
        waiting: WaitingT,
        send: Callable[[WaitingT], Awaitable[bool]],
        *,
        first_backoff_s: float = FIRST_BACKOFF_S,
        longest_backoff_s: float = LONGEST_BACKOFF_S,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.waiting = waiting
        self._name = name
        self._send = send
        self._first_backoff_s = first_backoff_s
        self._longest_backoff_s = longest_backoff_s
        self._pause = pause
        self._backoff_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.idle = asyncio.Event()
        """Set while nothing waits and no request is in flight."""
        self.idle.set()

    @property
    def has_longest_backoff(self) -> bool:
        return self._backoff_s == self._longest_backoff_s

    def wake(self) -> None:
        """Send what waits, from the next turn of the event loop on."""
        if self.waiting and self._task is None and not self._is_closed:
            self.idle.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    def close(self) -> None:
        """Cancel the request in flight, and send no more."""
        self._is_closed = True
        self.idle.set()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self.waiting:
                await self._send_once()
            self.idle.set()
        finally:  # also if `send` was cancelled by what it waits for: the next `wake` begins again
            self._task = None

    async def _send_once(self) -> None:
        try:
            is_sent = await self._send(self.waiting)
        except Exception:  # the owner's later requests must not be left without a sender
            _log.exception("Failed to send %s", self._name)
            is_sent = False
        if is_sent:
            self._backoff_s = 0.0
            await asyncio.sleep(0)
        else:
            self._backoff_s = min(max(self._backoff_s * 2, self._first_backoff_s), self._longest_backoff_s)
            await self._pause(self._backoff_s)
