"""What the connections of one server share: limits, buffers, a budget, and a cork."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol

from odradek.model.values import dataclass, field
from odradek.wire.buffers import BufferPool
from odradek.wire.memory_pressure import MemoryPressure
from odradek.wire.rate_limited_log import RateLimitedLog
from odradek.wire.turns import Turns

_JOINED_BYTES: Final = 16 * 1024
"""Replies up to this size together are copied into one write; larger ones are gathered by the kernel."""


class GroupedConnection(Protocol):
    """A connection, as those see it that it shares with others."""

    def continue_serving(self) -> None:
        """Something that was waited for has come."""

    def flush(self) -> None:
        """Write what was held back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may use. `idle_ms` 0 or less: it may be idle for ever."""

    largest_frame_bytes: int = 104_857_600
    """Kafka's `socket.request.max.bytes`."""
    idle_ms: int = 600_000
    """Kafka's `connections.max.idle.ms`, looked at once per such time. Who waits for an answer is not idle."""
    most_in_flight: int = 128
    """Unanswered requests; the buffers that their records lie in are bounded by it."""
    most_in_flight_bytes: int = 8 * 1024 * 1024
    """Bytes of unanswered requests, above which no more are served; one request may be larger than this."""
    turn_bytes: int = 1024 * 1024
    """Read budget per turn of the event loop; measured: without one, a fast producer makes others wait 350 ms."""
    turn_requests: int = 256
    """Requests served per turn, so that a pipeline of small ones can't hold the loop either; see also `turns`."""
    write_high_bytes: int = 64 * 1024
    """Unsent replies above which nothing more is served, until they are down to a quarter of this."""


class RequestBudget:
    """What all connections of a server may have in flight together, in bytes: Kafka's `queued.max.request.bytes`.

    When it is used up, connections stall until requests are answered; -1 is no limit. It is exceeded by at most one
    turn's reading.
    """

    __slots__ = ("_limit", "_used", "_waiting", "is_used_up")

    def __init__(self, limit_bytes: int = -1) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: dict[GroupedConnection, None] = {}
        self.is_used_up = False

    @property
    def used_bytes(self) -> int:
        """What is in flight."""
        return self._used

    def take(self, size: int) -> None:
        """Requests of `size` bytes are in flight."""
        self._used += size
        self.is_used_up = 0 <= self._limit <= self._used

    def give_back(self, size: int) -> None:
        """They are answered, or given up."""
        self._used -= size
        self.is_used_up = 0 <= self._limit <= self._used
        if self._waiting and not self.is_used_up:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.continue_serving()

    def wait(self, connection: GroupedConnection) -> None:
        """Let `connection` go on when there is something left."""
        self._waiting[connection] = None


class Cork:
    """While it is in, connections hold back what they write; when it is drawn, each writes once.

    A write is a system call of its own to uvloop, and what one append makes known is often many replies to one client.
    Who comes last is first: after those who wrote records come those who waited for them, and have the longer way.
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
        """`connection` has something to flush; said once."""
        self._connections.append(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionGroup:
    """One server's connections have one of these in common."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    pool: BufferPool = field(default_factory=BufferPool)
    budget: RequestBudget = field(default_factory=RequestBudget)
    cork: Cork = field(default_factory=Cork)
    turns: Turns = field(default_factory=Turns)
    memory_pressure: MemoryPressure = field(init=False)
    response_bytes: int = 1 << 62
    """How much of all connections' answers may be unsent before readers get less, and those that are stuck go."""
    rate_limited_log: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(logging.getLogger("odradek.wire")))
    clock: Callable[[], float] | None = None
    """Asked for `Connection.read_at` at every read, if somebody wants to know."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory_pressure", MemoryPressure(self.pool, self.response_bytes))


def limit_unsent(transport: asyncio.Transport, high_bytes: int) -> None:
    """Have `transport` pause its protocol from now on, at once if so much is unsent already.

    To be called again when more than that is unsent after `writelines` and the protocol was not paused: asyncio's own
    forgets to in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 (CVE-2024-12254), and memory would have no limit.
    """
    transport.set_write_buffer_limits(high_bytes, high_bytes // 4)


def gather(pieces: Sequence[bytes | bytearray | memoryview], size: int) -> Sequence[bytes | bytearray | memoryview]:
    """The same bytes, `size` of them, in as few pieces as is worth a copy."""
    if size <= _JOINED_BYTES:
        return (b"".join(pieces),)
    return pieces
