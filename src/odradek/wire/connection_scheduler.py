"""Schedules the connections of one server, which share a time slice of each iteration ("turn") of the event loop.

A connection serves requests as soon as they arrive, until the time slice is used up. Connections with requests left
wait in one of two queues, each with its own time slice in every turn: one for connections with fewer than
`SHARED_REQUESTS` requests served in a row, the other for longer backlogs. A client with few unanswered requests
therefore waits for a turn or two, however many requests other connections have pipelined; or, when many connections
have requests at the same time, for a request or two of each.
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
ROUND_S: Final = 0.05
"""The time in which each connection of the first queue is served once, if their requests are short enough."""
LEAST_SHARE_S: Final = 0.00005
"""The time of a connection of the first queue, however many wait: about one request."""


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
        share_s = max(ROUND_S / max(len(self._interrupted), 1), LEAST_SHARE_S)
        self._serve(self._interrupted, min(share_s, TIME_SLICE_S))
        self._serve(self._backlogged, TIME_SLICE_S)
        self._until = None
        if self._interrupted or self._backlogged:
            self._schedule()

    def _serve(self, queue: deque[ReadyConnection], share_s: float) -> None:
        """Serve connections for a time slice, each of them for at most `share_s`."""
        now = self._now()
        end = now + TIME_SLICE_S
        for _ in range(len(queue)):
            self._until = min(now + share_s, end)
            queue.popleft().serve_next()
            now = self._now()
            if now >= end:
                break

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock()
