"""Delayed operations: requests that cannot be answered yet, with their timeouts (`DelayedOperationPurgatory`).

An operation completes by its condition (an append, a new high watermark), its timeout, its client's disconnection or
the broker's shutdown, whichever comes first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from odradek.broker.turns import TURN


class DelayedOperation(Protocol):
    """An operation in the purgatory."""

    def expire(self) -> None:
        """Complete the operation because of its timeout or shutdown; the purgatory has already removed it."""


class Purgatory:
    """The delayed operations of a broker, and their timers."""

    def __init__(self) -> None:
        self._timers: dict[DelayedOperation, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._left = TURN
        self._late: deque[tuple[Callable[[], None], int]] = deque()
        """The answers that wait for a later iteration of the loop, with their weights."""

    def __len__(self) -> int:
        return len(self._timers)

    def park(self, operation: DelayedOperation, delay_ms: int) -> None:
        """Expire `operation` after `delay_ms`, unless it is released before."""
        assert operation not in self._timers
        self._timers[operation] = self._loop.call_later(delay_ms / 1000, self._expire, operation)

    def release(self, operation: DelayedOperation) -> bool:
        """Remove an operation; return False if it is not in the purgatory, for instance because it has expired."""
        timer = self._timers.pop(operation, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    def answer(self, answer: Callable[[], None], weight: int) -> None:
        """Call `answer` now, or in a later iteration of the loop once this one has used up its `TURN`."""
        if self._left == TURN:
            self._loop.call_soon(self._answer_late)
        if self._left > 0 and not self._late:
            self._left -= weight
            answer()
        else:
            self._late.append((answer, weight))

    def _answer_late(self) -> None:
        self._left = TURN
        try:
            while self._late and self._left > 0:
                answer, weight = self._late.popleft()
                self._left -= weight
                answer()
        finally:  # an answer that fails must not end the turns of all later ones
            if self._left < TURN:
                self._loop.call_soon(self._answer_late)

    def kill(self) -> None:
        """Drop the answers that wait for a turn: they would read logs whose files are closed."""
        self._late.clear()

    def expire_all(self) -> None:
        """Expire all operations, and give all answers that wait for a turn: the broker stops."""
        for operation in tuple(self._timers):
            if self.release(operation):
                operation.expire()
        while self._late:
            self._late.popleft()[0]()

    def _expire(self, operation: DelayedOperation) -> None:
        del self._timers[operation]
        operation.expire()
