"""Requests that can't be answered yet, each with the time by which it must be.

An operation is completed by whoever makes its condition true (an append, a high watermark that moves), by its
deadline, by its client's going away, or by the end of the broker, whichever comes first; the others then find it gone.
"""

import asyncio
from typing import Protocol


class Delayed(Protocol):
    """What waits here."""

    def expire(self) -> None:
        """Answer with what there is: the time is up. The purgatory has let go of it already."""


class Purgatory:
    """Operations and their timers."""

    def __init__(self) -> None:
        self._timers: dict[Delayed, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._timers)

    def park(self, operation: Delayed, delay_ms: int) -> None:
        """Expire `operation` after `delay_ms`, unless it is released before."""
        assert operation not in self._timers
        self._timers[operation] = self._loop.call_later(delay_ms / 1000, self._expire, operation)

    def release(self, operation: Delayed) -> bool:
        """Forget an operation that is complete; False if its time came first."""
        timer = self._timers.pop(operation, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    def expire_all(self) -> None:
        """Answer everything that waits: the broker stops."""
        for operation in tuple(self._timers):
            if self.release(operation):
                operation.expire()

    def _expire(self, operation: Delayed) -> None:
        del self._timers[operation]
        operation.expire()
