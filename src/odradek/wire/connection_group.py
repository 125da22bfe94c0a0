"""The objects that all connections of one server share: limits, buffer pool, request budget, write cork."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from types import TracebackType
from typing import Final, Protocol

from msgspec import Struct, field

from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.wire.buffers import BufferPool
from odradek.wire.connection_scheduler import ConnectionScheduler
from odradek.wire.memory_pressure import MemoryPressure

_JOINED_BYTES: Final = 16 * 1024
"""The pieces of replies up to this size are copied into one; larger replies use a gathering write."""


class GroupedConnection(Protocol):
    """The methods of a connection that the shared objects call."""

    def continue_serving(self) -> None:
        """Serve the requests that had to wait."""

    def flush(self) -> None:
        """Send the replies that were held back."""


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The limits of one connection. With `idle_ms` of 0 or less an idle connection stays open."""

    largest_frame_bytes: int = 104_857_600
    """Kafka's `socket.request.max.bytes`."""
    idle_ms: int = 600_000
    """Kafka's `connections.max.idle.ms`, checked at this interval. A connection with an unanswered request is not
    idle."""
    most_in_flight: int = 128
    """Limit of unanswered requests, and so of the buffers that hold their records."""
    most_in_flight_bytes: int = 8 * 1024 * 1024
    """Bytes of unanswered requests above which no more are served; a single request may be larger."""
    turn_bytes: int = 1024 * 1024
    """Read budget per turn of the event loop. Without one, a fast producer delays others by 350 ms (measured)."""
    turn_requests: int = 256
    """Limit of requests served per turn, so that pipelined small requests cannot occupy the event loop."""
    write_high_bytes: int = 64 * 1024
    """Unsent bytes above which no request is served, until they fall to a quarter of this."""


class RequestBudget:
    """The limit of the bytes of all unanswered requests: Kafka's `queued.max.request.bytes`; -1 means no limit.

    At the limit, connections wait until requests are answered. Requests served in one turn may exceed the limit.
    """

    __slots__ = ("_limit", "_used", "_waiting", "is_exhausted")

    def __init__(self, limit_bytes: int = -1) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: dict[GroupedConnection, None] = {}
        self.is_exhausted = False

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def may_wait(self) -> bool:
        """Whether a request may stay unanswered because its client wants to wait.

        Such requests take at most half of the limit: a client may wait for 24 days, and others need the rest.
        """
        return self._limit < 0 or 2 * self._used < self._limit

    def take(self, size: int) -> None:
        self._used += size
        self.is_exhausted = 0 <= self._limit <= self._used

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes of requests that have ended; below the limit, resume the waiting connections."""
        self._used -= size
        self.is_exhausted = 0 <= self._limit <= self._used
        if self._waiting and not self.is_exhausted:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.continue_serving()

    def wait(self, connection: GroupedConnection) -> None:
        """Resume `connection` when the used bytes are below the limit."""
        self._waiting[connection] = None


class Cork:
    """A context manager: inside, connections hold back their writes; at its end, each connection writes once.

    Each write is a system call under uvloop, and one append often completes many replies to one client. Connections
    write in reverse order: an append completes the fetches last, but clients process their responses longer.
    """

    __slots__ = ("_connections", "_depth", "is_in")

    def __init__(self) -> None:
        self.is_in = False
        self._depth = 0
        self._connections: list[GroupedConnection] = []

    def __enter__(self) -> None:
        self._depth += 1
        self.is_in = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.is_in = False
            connections, self._connections = self._connections, []
            for connection in reversed(connections):
                connection.flush()

    def add(self, connection: GroupedConnection) -> None:
        """Flush `connection` when the outermost `with` block of this cork ends. Call it once per connection."""
        self._connections.append(connection)


class ConnectionGroup(Struct, frozen=True, kw_only=True, dict=True):
    """The shared objects of one server's connections."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    pool: BufferPool = field(default_factory=BufferPool)
    budget: RequestBudget = field(default_factory=RequestBudget)
    cork: Cork = field(default_factory=Cork)
    scheduler: ConnectionScheduler = field(default_factory=ConnectionScheduler)
    response_bytes: int = 1 << 62
    """Unsent bytes of all responses above which fetches return less and connections that make no progress are
    closed."""
    rate_limited_log: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(logging.getLogger("odradek.wire")))
    clock: Callable[[], float] | None = None
    """The source of `Connection.read_at`, called when bytes arrive; None if not needed."""

    @cached_property
    def memory_pressure(self) -> MemoryPressure:
        return MemoryPressure(self.pool, self.response_bytes)


def limit_unsent(transport: asyncio.Transport, high_bytes: int) -> None:
    """Make `transport` pause its protocol above `high_bytes` unsent bytes, at once if it has as many already.

    Call it again after a `writelines` that did not pause the protocol: asyncio omits the pause in Python 3.12.0 to
    3.12.8 and 3.13.0 to 3.13.1 (CVE-2024-12254).
    """
    transport.set_write_buffer_limits(high_bytes, high_bytes // 4)


def gather(pieces: Sequence[bytes | bytearray | memoryview], size: int) -> Sequence[bytes | bytearray | memoryview]:
    """Return the same `size` bytes, joined into one piece where a copy is cheaper than a gathering write."""
    if size <= _JOINED_BYTES:
        return (b"".join(pieces),)
    return pieces
