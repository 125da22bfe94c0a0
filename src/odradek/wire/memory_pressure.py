"""Closes connections that hold memory and make no progress while the server's memory is exhausted.

Incomplete requests are in the pool's buffers, unread responses in the transports; both are limited. At a limit, all
connections are checked every few seconds. Those that hold memory because of their client and made no progress since the
last check are closed. If there are none, the connection that has waited longest for memory is closed.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from odradek.wire.buffers import BufferPool

CHECK_INTERVAL_S: Final = 5.0
"""The time between two checks."""
LEAST_PROGRESS_BYTES: Final = 64 * 1024
"""Progress of a large request or response: at least this many bytes must arrive or be sent between two checks."""
RECOUNT_S: Final = 0.05
"""The shortest time between two counts of all responses in memory."""


class MemoryUse(NamedTuple):
    """The memory that a connection holds and the progress it has made."""

    held_bytes: int
    """Bytes of incomplete requests and of responses that the client does not read."""
    served: int
    """Turns in which a request was served."""
    unserved_bytes: int
    unsent_bytes: int
    sent_bytes: int
    """Bytes of responses that were sent since the connection was made."""
    response_bytes: int
    """Bytes of responses in memory: a large one stays in memory as a whole until its last byte is sent."""
    waits: bool
    """Whether the connection waits for memory."""

    def made_no_progress_since(self, before: "MemoryUse") -> bool:
        """Return whether the connection holds memory and, by its client's fault, made no progress since `before`."""
        arrived = self.unserved_bytes - before.unserved_bytes
        return (
            self.held_bytes > 0
            and not (self.waits or before.waits)
            and self.served == before.served
            and arrived < LEAST_PROGRESS_BYTES
            and self.sent_bytes - before.sent_bytes < min(max(before.unsent_bytes, 1), LEAST_PROGRESS_BYTES)
        )


class MonitoredConnection(Protocol):
    """The methods of a connection that `MemoryPressure` calls."""

    def memory_use(self) -> MemoryUse:
        """Return the connection's memory and progress."""

    def close_stuck(self) -> None:
        """Close the connection and log why."""


class MemoryPressure:
    """The memory check of one server's connections. `response_bytes` is the limit of all responses in memory."""

    def __init__(self, pool: BufferPool, response_bytes: int = 1 << 62) -> None:
        self._pool = pool
        self._response_bytes = response_bytes
        self._estimate_bytes = 0
        self._counted_at_s = float("-inf")
        self._connections: dict[MonitoredConnection, None] = {}
        self._seen: dict[MonitoredConnection, MemoryUse] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: MonitoredConnection) -> None:
        self._connections[connection] = None

    def remove(self, connection: MonitoredConnection) -> None:
        self._connections.pop(connection, None)
        self._seen.pop(connection, None)

    def begin(self) -> None:
        """Check the connections every `CHECK_INTERVAL_S` until memory is no longer exhausted."""
        if self._timer is None:
            self._seen = {each: each.memory_use() for each in self._connections}
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def answered(self, size: int) -> None:
        """Add `size` bytes of responses, unsent or about to be sent, to the estimate.

        A reader that keeps to `response_room` has to add every response. If one that fits into the last of the room
        were not added, the responses would not be counted anew, and all that follow would be as small.
        """
        self._estimate_bytes += size

    def response_room(self) -> int:
        """Return an estimate of how many more response bytes fit into memory; at 0 the responses are counted anew."""
        left = self._response_bytes - self._estimate_bytes
        if left > 0:
            return left
        now_s = asyncio.get_running_loop().time()
        if now_s - self._counted_at_s < RECOUNT_S:
            return 0
        self._counted_at_s = now_s
        if self._count() >= self._response_bytes:
            self.begin()
        return max(self._response_bytes - self._estimate_bytes, 0)

    def _count(self) -> int:
        self._estimate_bytes = sum(each.memory_use().response_bytes for each in self._connections)
        return self._estimate_bytes

    def _check(self) -> None:
        self._timer = None
        if not self._is_high():
            return
        before = self._seen
        stuck = [
            each
            for each in self._connections
            if each in before and each.memory_use().made_no_progress_since(before[each])
        ]
        longest: object = self._pool.first_waiter
        # If there is memory, the pool calls that waiter in this iteration of the event loop.
        if not stuck and longest is not None and self._pool.is_exhausted:
            stuck = [each for each in self._connections if each is longest and each in before and before[each].waits]
        for connection in stuck:
            connection.close_stuck()
        if self._is_high():
            self.begin()

    def _is_high(self) -> bool:
        return self._pool.first_waiter is not None or self._count() >= self._response_bytes
