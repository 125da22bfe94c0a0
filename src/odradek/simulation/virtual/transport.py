"""Connections of a `MemoryNetwork`: two asyncio transports, joined by a `Link` in each direction.

```
  MemoryTransport ──Link──▶ MemoryTransport        a Link has pieces in flight, in order, each with its own time of
                  ◀──Link──                        arrival: DATA, then at most one EOF or RESET
```
The callbacks of an end have its host's context, so they wait while the host is paused; the pieces then wait, too.
`write` keeps the caller's buffer until the end of the turn, as uvloop does, then asserts that it has not changed, and
copies it.
"""

import asyncio
import enum
import errno
import zlib
from collections import deque
from collections.abc import Iterable
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

from odradek.simulation.virtual.clock import HOST

Address = tuple[str, int]
_SOCKET_BYTES: Final = 256 * 1024
"""Capacity of both kernels' buffers: bytes beyond it count as waiting in the sender's transport."""

_MOST_BYTES_AT_ONCE: Final = 64 * 1024
"""The largest piece: the most that a socket returns in one read."""

_HIGH_WATER: Final = 64 * 1024
"""asyncio's own default for pausing a writer."""


class Conditions(Protocol):
    """The methods of a `MemoryNetwork` that its connections use."""

    def now_s(self) -> float:
        """Return the elapsed time of the network, whose clock does not drift."""

    def latency(self, source: str = "", target: str = "") -> float:
        """Return the delay of the next transmission from `source` to `target`, in seconds."""

    def cut_point(self, size: int) -> int:
        """Return how many of `size` bytes travel as one piece."""

    def is_blocked(self, source: str, target: str) -> bool:
        """Return whether data from `source` to `target` is held back."""

    def hold(self, link: "Link") -> None:
        """Call `link.release()` when the cut is healed."""

    def remember(self, host: str, transport: "MemoryTransport") -> None:
        """Record an open connection of `host`; if the host crashes, call `transport.die()`."""

    def forget(self, transport: "MemoryTransport") -> None:
        """Record that a connection's end is gone."""

    def note(self, event: str) -> None:
        """Put `event` into the trace."""


class _Mark(enum.Enum):
    EOF = "end of file"
    RESET = "reset"


class Link:
    """One direction of a connection. Pieces arrive in the order in which they were sent, whatever their latency."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Conditions, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.sender: MemoryTransport
        self.receiver: MemoryTransport
        self._loop = loop
        self._network = network
        self._flying: deque[bytes | _Mark] = deque()
        self._held_count = 0
        self._latest = 0.0

    def send(self, piece: bytes | _Mark) -> None:
        """Deliver `piece` after everything sent before."""
        self._flying.append(piece)
        self._schedule()

    def release(self) -> None:
        """Schedule the pieces that a cut has held back again."""
        held_count, self._held_count = self._held_count, 0
        for _ in range(held_count):
            self._schedule()

    def _schedule(self) -> None:
        now_s = self._network.now_s()
        self._latest = max(self._latest, now_s + self._network.latency(self.source, self.target))
        self._loop.call_later(self._latest - now_s, self._arrive, context=self.receiver.context)

    def _arrive(self) -> None:
        # The timer that fires first takes the oldest piece, so timers that change places don't reorder bytes.
        if self._network.is_blocked(self.source, self.target):
            self._held_count += 1
            self._network.hold(self)
            return
        piece = self._flying.popleft()
        size = f"{len(piece)} B {zlib.crc32(piece):08x}" if isinstance(piece, bytes) else piece.value
        self._network.note(f"{self.source} → {self.target}: {size}")
        self.receiver.receive(piece)


class MemoryTransport(asyncio.Transport):
    """One end of a connection; `join` makes both."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        link: Link,
        network: Conditions,
        *,
        near: Address,
        far: Address,
    ) -> None:
        super().__init__({"sockname": near, "peername": far})
        self.context = context_of(link.source)
        self._loop = loop
        self._protocol = protocol
        self._link = link
        self._network = network
        self._started = False
        self._reading = True
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._unsent: list[tuple[Any, int | None]] = []
        self._unread: deque[bytes | _Mark] = deque()
        self._outstanding_bytes = 0
        self._high_bytes = _HIGH_WATER
        self._low_bytes = _HIGH_WATER // 4
        self._writer_paused = False
        network.remember(link.source, self)

    # ---- opening ------------------------------------------------------------------------------------------------

    def start_soon(self) -> None:
        """Report the connection to the protocol in the next turn."""
        self._loop.call_soon(self.start, context=self.context)

    def start(self) -> None:
        """Report the connection to the protocol, and then the data that has arrived already."""
        if self._lost:
            return
        self._started = True
        self._protocol.connection_made(self)
        self._loop.call_soon(self._read, context=self.context)

    # ---- reading ------------------------------------------------------------------------------------------------

    def receive(self, piece: bytes | _Mark) -> None:
        """Process a piece that arrives from the other end."""
        if self._lost:
            if isinstance(piece, bytes):
                self._link.send(_Mark.RESET)
        elif piece is _Mark.RESET:
            self._drop(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        elif not self._closing:
            self._unread.append(piece)
            self._read()

    def _read(self) -> None:
        while self._unread and self._started and self._reading and not self._closing:
            piece = self._unread.popleft()
            try:
                if isinstance(piece, bytes):
                    self._deliver(piece)
                elif not getattr(self._protocol, "eof_received")():  # noqa: B009 - both kinds of protocol have it
                    self.close()
            except Exception as error:  # the outermost edge of a callback, as in asyncio
                self._loop.call_exception_handler(
                    {"message": "a protocol's callback failed", "exception": error, "protocol": self._protocol}
                )
                self.abort()

    def _deliver(self, piece: bytes) -> None:
        taken = piece
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            room = memoryview(self._protocol.get_buffer(-1)).cast("B")
            assert len(room) > 0, "get_buffer() returned an empty buffer"
            taken = piece[: len(room)]
            room[: len(taken)] = taken
            if len(taken) < len(piece):
                self._unread.appendleft(piece[len(taken) :])
            self._protocol.buffer_updated(len(taken))
        else:
            assert isinstance(self._protocol, asyncio.Protocol), f"{self._protocol!r} cannot read"
            self._protocol.data_received(piece)
        sender, delay_s = self._link.receiver, self._network.latency()
        if sender.awaits_acknowledgements:
            self._loop.call_later(delay_s, sender.acknowledge, len(taken), context=sender.context)
        else:
            sender.acknowledge(len(taken))  # its time makes no difference

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        """Read again, as asyncio's transports do."""
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read, context=self.context)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write `data`, which must not change before the end of this turn."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be a bytes-like object, not {type(data).__name__}")
        if self._eof_sent:
            raise RuntimeError("cannot write after write_eof()")
        if self._closing or self._lost or not len(data):
            return
        # The caller may change the buffer by mistake, since the memory of responses is reused: `_send` compares CRCs.
        self._unsent.append((data, None if isinstance(data, bytes) else zlib.crc32(data)))
        self._outstanding_bytes += memoryview(data).nbytes
        if len(self._unsent) == 1:
            self._loop.call_soon(self._send, context=self.context)
        self._pause_writer()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def _send(self) -> None:
        """Send the data written in this turn, in pieces that the seed chooses."""
        buffers, self._unsent = self._unsent, []
        for data, crc in buffers:
            assert crc is None or crc == zlib.crc32(data), "a buffer was changed before the loop had sent it"
        rest = memoryview(b"".join(data for data, _ in buffers))
        while rest:
            size = self._network.cut_point(min(len(rest), _MOST_BYTES_AT_ONCE))
            self._link.send(bytes(rest[:size]))
            rest = rest[size:]

    def write_eof(self) -> None:
        """Send an end of file after the written data."""
        if not self._eof_sent and not self._closing:
            self._send()
            self._eof_sent = True
            self._link.send(_Mark.EOF)

    def can_write_eof(self) -> bool:
        """Return True: TCP has half-closed connections."""
        return True

    @property
    def awaits_acknowledgements(self) -> bool:
        """Whether the sockets' buffers are full, or the transport is being closed."""
        return self._outstanding_bytes > _SOCKET_BYTES or self._closing

    def acknowledge(self, size: int) -> None:
        """Record that the other end has read `size` bytes."""
        self._outstanding_bytes -= size
        assert self._outstanding_bytes >= 0, "more was read than was written"
        if self._lost:
            return
        if self._writer_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._writer_paused = False
            self._protocol.resume_writing()
        if self._closing and self.get_write_buffer_size() == 0:
            self._loop.call_soon(self._lose, None, context=self.context)

    def get_write_buffer_size(self) -> int:
        """Return the bytes that do not fit into the sockets' buffers."""
        return max(0, self._outstanding_bytes - _SOCKET_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        self._pause_writer()

    def _pause_writer(self) -> None:
        if not self._writer_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writer_paused = True
            self._protocol.pause_writing()

    # ---- closing ------------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send the written data and then an end of file; stop reading.

        The protocol's `connection_lost` is called when the remaining data fits into the sockets' buffers.
        """
        if self._closing:
            return
        self._send()
        if not self._eof_sent:
            self._link.send(_Mark.EOF)
        self._closing = True
        self._unread.clear()
        if self.get_write_buffer_size() == 0:
            self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        """Drop the data written in this turn; the other end gets a reset."""
        self._reset(None)

    def die(self) -> None:
        """Reset the connection without calling the protocol, whose process has crashed."""
        self._started = False
        self._reset(None)

    def _reset(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._link.send(_Mark.RESET)
        self._drop(error)

    def _drop(self, error: Exception | None) -> None:
        self._closing = True
        self._unread.clear()
        self._unsent.clear()
        self._loop.call_soon(self._lose, error, context=self.context)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._network.forget(self)
        if self._started:
            self._protocol.connection_lost(error)


def join(
    loop: asyncio.AbstractEventLoop,
    client: asyncio.BaseProtocol,
    server: asyncio.BaseProtocol,
    *,
    hosts: tuple[str, str],
    addresses: tuple[Address, Address],
    network: Conditions,
) -> tuple[MemoryTransport, MemoryTransport]:
    """Return a new connection's `(client_end, server_end)`, not yet started."""
    there, back = Link(loop, network, *hosts), Link(loop, network, *reversed(hosts))
    near = MemoryTransport(loop, client, there, network, near=addresses[0], far=addresses[1])
    far = MemoryTransport(loop, server, back, network, near=addresses[1], far=addresses[0])
    there.sender = back.receiver = near
    back.sender = there.receiver = far
    return near, far


def context_of(host: str) -> Context:
    """Return a copy of the present context for callbacks of a process on `host`."""
    context = copy_context()
    context.run(HOST.set, host)
    return context
