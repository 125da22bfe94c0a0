"""The server's side of TLS connections, whose costly steps are done in turns.

A step of a handshake may sign, which takes up to 5 ms. A record without data, such as a key update, costs 8 µs for 27
bytes, needs no login, and OpenSSL accepts any number of them. So a client that sends little else is closed, and what
all clients send without data in one iteration of the event loop has a limit, after which further reads wait for turns.

`_Gate` is between the socket and asyncio's or uvloop's TLS, and `_Session` between that and OpenSSL.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final
from weakref import WeakKeyDictionary

from odradek.runtime.turns import call_in_turn

_HANDSHAKE_S: Final = 10.0
"""Limit of a TLS handshake, and of the end of a TLS connection."""
READ_BYTES: Final = 32 * 1024
"""Limit of bytes that are read at once, unless a client just sent long records: key updates of this size take 10 ms."""
LONG_READ_BYTES: Final = 256 * 1024
"""The same after long records, where shorter reads cost a tenth more CPU. Key updates of this size take 75 ms."""
MOST_WITHOUT_DATA_BYTES: Final = 32 * 1024
"""Limit of bytes that one connection sends without data: more than the longest record, which may arrive in parts."""
MOST_PER_ITERATION_BYTES: Final = 96 * 1024
"""Limit of bytes without data, of all connections, after which the next ones wait."""
_TRUSTED_BYTES: Final = 8 * 1024
_RECORD_BYTES: Final = 32
"""A record is longer than its data by less than this."""
_DATA_SHARE: Final = 8
"""A byte of data makes up for so many other bytes: a record of 4 bytes has 26."""


async def open_tls(protocol: asyncio.BaseProtocol, accepted: socket.socket, context: ssl.SSLContext) -> None:
    """Connect `protocol` to a client by TLS. Raises `OSError` if the handshake fails, or takes too long."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    gate = _Gate(context)
    gate.attach(_tls_protocol(loop)(
        loop, protocol, gate, over, server_side=True,
        ssl_handshake_timeout=_HANDSHAKE_S, ssl_shutdown_timeout=_HANDSHAKE_S,
    ))  # fmt: skip
    transport, _ = await loop.connect_accepted_socket(lambda: gate, accepted)
    try:
        await over
    except BaseException:
        transport.abort()
        raise


class _Gate(asyncio.BufferedProtocol):
    """Passes to `tls` what a client sends, in small parts; it is also what `tls` takes for its context."""

    tls: Any
    transport: Any = None
    has_data = False
    """Whether the last read had a long record."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def attach(self, tls: Any) -> None:
        """Pass on to `tls`; called before the connection is made."""
        self.tls = tls
        self._long_space = tls.get_buffer(LONG_READ_BYTES)[:LONG_READ_BYTES]  # it stays the same
        self._space = self._long_space[:READ_BYTES]
        self.buffer_updated, self.eof_received = tls.buffer_updated, tls.eof_received  # type: ignore[method-assign]
        self.pause_writing, self.resume_writing = tls.pause_writing, tls.resume_writing  # type: ignore[method-assign]

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> "_Session":
        """Return what `tls` takes for its `ssl.SSLObject`."""
        return _Session(self, incoming, self._context.wrap_bio(incoming, outgoing, **options))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.tls.connection_made(transport)

    def get_buffer(self, sizehint: int) -> Any:
        is_trusted, self.has_data = self.has_data, False
        return self._long_space if is_trusted else self._space

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.tls.connection_lost(exc)


class _Iteration:
    """The bytes without data that were read in this iteration of an event loop."""

    without_data_bytes = 0
    in_turns_bytes = 0
    """Those of connections that waited for their turn, which do not wait for others again."""

    def count(self, more_bytes: int, *, in_turn: bool) -> None:
        if not (self.without_data_bytes or self.in_turns_bytes):
            asyncio.get_running_loop().call_soon(self._end)
        if in_turn:
            self.in_turns_bytes += more_bytes
        else:
            self.without_data_bytes += more_bytes

    def _end(self) -> None:
        self.without_data_bytes = self.in_turns_bytes = 0


_iterations: WeakKeyDictionary[asyncio.AbstractEventLoop, _Iteration] = WeakKeyDictionary()


class _Session:
    """An `ssl.SSLObject` that sometimes waits for its turn: as if no more bytes had arrived yet."""

    def __init__(self, gate: _Gate, incoming: ssl.MemoryBIO, wrapped: ssl.SSLObject) -> None:
        self._gate = gate
        self._incoming = incoming
        self._wrapped = wrapped
        self._iteration = _iterations.setdefault(asyncio.get_running_loop(), _Iteration())
        self._without_data_bytes = 0
        self._is_waiting = self._has_turn = self._has_paused = False
        self._read, self.write, self.pending = wrapped.read, wrapped.write, wrapped.pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def do_handshake(self) -> None:
        if self._incoming.pending and not self._has_turn:
            self._pause()
            self._wait()
        self._wrapped.do_handshake()
        self._gate.tls._get_app_transport().set_read_buffer_limits(high=READ_BYTES, low=0)

    def read(self, size: int, buffer: Any = None) -> Any:
        if self._iteration.without_data_bytes > MOST_PER_ITERATION_BYTES and not self._has_turn:
            self._wait()
        incoming = self._incoming
        before = incoming.pending
        try:
            read: Any = self._read(size) if buffer is None else self._read(size, buffer)
        except ssl.SSLWantReadError:
            self._count(before - incoming.pending, 0)
            raise
        data: int = len(read) if buffer is None else read
        consumed = before - incoming.pending
        if self._without_data_bytes or consumed > data + _RECORD_BYTES or data < _RECORD_BYTES:
            self._count(consumed, data)
        if data >= _TRUSTED_BYTES:
            self._gate.has_data = True
        return read

    def unwrap(self) -> Any:
        if self._incoming.pending and not self._has_turn:  # `read` waits
            self._pause()
            self._wait()
        return self._wrapped.unwrap()

    def _pause(self) -> None:
        """Pause reading, which `tls` does by itself while a connection is open, but not before and after that."""
        self._has_paused = True
        self._gate.transport.pause_reading()

    def _count(self, consumed: int, data: int) -> None:
        self._without_data_bytes = max(self._without_data_bytes + consumed - _DATA_SHARE * data, 0)
        if consumed > data:
            self._iteration.count(consumed - data, in_turn=self._has_turn)
        if self._without_data_bytes > MOST_WITHOUT_DATA_BYTES:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "too many records without data")

    def _wait(self) -> None:
        self._join_queue()
        raise ssl.SSLWantReadError

    def _join_queue(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            call_in_turn(self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        if self._gate.transport is None or self._gate.transport.is_closing():
            return
        if self._iteration.in_turns_bytes > MOST_PER_ITERATION_BYTES:
            self._join_queue()
            return
        self._has_turn = True
        try:
            if self._has_paused:
                self._has_paused = False
                self._gate.transport.resume_reading()
            self._gate.tls.buffer_updated(0)
        finally:
            self._has_turn = False


def _tls_protocol(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the class of the event loop's own TLS."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return SSLProtocol
    from uvloop.loop import SSLProtocol as OfUvloop  # type: ignore[attr-defined]

    return OfUvloop
