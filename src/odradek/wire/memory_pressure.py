"""Who has to go when memory is used up: clients that hold it and get nowhere.

Requests that are not whole lie in buffers of the pool, answers that nobody reads in the transports. Both are bounded,
and as long as neither bound is reached nobody is hurried. When one is, all connections are looked at every few seconds:
those that hold memory by their own fault, and got no further since the last look, are closed; if there are none, the
one that has waited longest for memory is.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from odradek.wire.buffers import BufferPool

CHECK_INTERVAL_S: Final = 5.0
"""Between two looks."""
LEAST_PROGRESS_BYTES: Final = 64 * 1024
"""What has to come of a large request in that time."""
_RECOUNT_S: Final = 0.05


class MemoryUse(NamedTuple):
    """What a connection holds, and how far it got."""

    held_bytes: int
    """By its own fault: of requests that did not come in full, of answers that it does not read."""
    served: int
    """Turns in which a request was served."""
    unserved_bytes: int
    unsent_bytes: int
    response_bytes: int
    """Of answers that are in memory: a large one is there as a whole until its last byte is sent."""
    waits: bool
    """It would go on if there were memory."""

    def made_no_progress_since(self, before: "MemoryUse") -> bool:
        """Whether it got nowhere."""
        arrived = self.unserved_bytes - before.unserved_bytes
        return (
            self.held_bytes > 0
            and not (self.waits or before.waits)
            and self.served == before.served
            and arrived < LEAST_PROGRESS_BYTES
            and 0 <= before.unsent_bytes <= self.unsent_bytes
        )


class MonitoredConnection(Protocol):
    """A connection, as it is looked at."""

    def memory_use(self) -> MemoryUse:
        """What it holds."""

    def close_stuck(self) -> None:
        """Close it, and say why."""


class MemoryPressure:
    """One server's connections. `response_bytes`: how much of answers may be in memory."""

    def __init__(self, pool: BufferPool, response_bytes: int = 1 << 62) -> None:
        self._pool = pool
        self._response_bytes = response_bytes
        self._estimate_bytes = 0
        self._counted_at_s = float("-inf")
        self._connections: dict[MonitoredConnection, None] = {}
        self._seen: dict[MonitoredConnection, MemoryUse] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: MonitoredConnection) -> None:
        """One more."""
        self._connections[connection] = None

    def remove(self, connection: MonitoredConnection) -> None:
        """It is gone."""
        self._connections.pop(connection, None)
        self._seen.pop(connection, None)

    def begin(self) -> None:
        """Memory is used up: look, and look again until it is not."""
        if self._timer is None:
            self._seen = {each: each.memory_use() for each in self._connections}
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def answered(self, size: int) -> None:
        """An answer of `size` bytes is about to be sent; small ones need not be told."""
        self._estimate_bytes += size

    def response_room(self) -> int:
        """How many bytes of answers there is room for. They are counted only when the estimate says: none."""
        left = self._response_bytes - self._estimate_bytes
        if left > 0:
            return left
        now_s = asyncio.get_running_loop().time()
        if now_s - self._counted_at_s < _RECOUNT_S:
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
        # If memory is there, it will be called this very turn.
        if not stuck and longest is not None and self._pool.is_used_up:
            stuck = [each for each in self._connections if each is longest and each in before and before[each].waits]
        for connection in stuck:
            connection.close_stuck()
        if self._is_high():
            self.begin()

    def _is_high(self) -> bool:
        return self._pool.first_waiter is not None or self._count() >= self._response_bytes
