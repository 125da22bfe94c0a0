"""Schedules the connections of one server, which share a time slice of each iteration ("turn") of the event loop.

A connection serves requests as soon as they arrive, until the time slice is used up. Connections with requests left
wait in one of two queues, each with its own time slice in every turn: one for connections with fewer than
`SHARED_REQUESTS` requests served in a row, the other for longer backlogs. A client with few unanswered requests
therefore waits for a turn or two, however many requests other connections have pipelined.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

TIME_SLICE_S: Final = 0.0005
"""The time per turn for arriving requests, and for the connections of each queue."""
SHARED_REQUESTS: Final = 32
"""Requests of one connection that are served in a row while others wait. With a lower limit, each small reply would
cost a system call; most clients have at most 5 unanswered requests."""


class ReadyConnection(Protocol):
    """A connection with requests left."""

    def serve_next(self) -> None:
        """Serve some requests, or do nothing if the connection is closed."""


class ConnectionScheduler:
    """The scheduler of one server's connections. Without a clock, time slices are unlimited."""

    __slots__ = ("_backlogged", "_clock", "_interrupted", "_is_scheduled", "_until")

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        self._clock = monotonic
        self._until: float | None = None  # None until the first request is served
        self._is_scheduled = False
        self._interrupted: deque[ReadyConnection] = deque()
        self._backlogged: deque[ReadyConnection] = deque()

    def must_yield(self, served: int) -> bool:
        """Return whether a connection that had `served` requests served in this turn has to wait."""
        if served >= SHARED_REQUESTS and (self._interrupted or self._backlogged):
            return True
        if self._clock is None:
            return False
        now = self._clock()
        if self._until is None:
            self._until = now + TIME_SLICE_S
            self._schedule()
        return now >= self._until

    def wait(self, connection: ReadyConnection, served_in_a_row: int) -> None:
        """Call `connection.serve_next` later. `served_in_a_row` counts requests since its buffer was last empty."""
        (self._interrupted if served_in_a_row < SHARED_REQUESTS else self._backlogged).append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        for queue in (self._interrupted, self._backlogged):
            self._until = None
            for _ in range(len(queue)):
                if self.must_yield(0):
                    break
                queue.popleft().serve_next()
        self._until = None
        if self._interrupted or self._backlogged:
            self._schedule()
