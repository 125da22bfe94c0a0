"""The server's side of TLS connections, whose costly steps are done in turns.

A step of a handshake signs, which takes up to 5 ms. A record costs up to 8 µs, however short it is, and no login is
needed to send key updates: OpenSSL accepts any number of them, 39,000 in a MiB. So reads during a handshake, and reads
of many records, wait for their turn, and meanwhile nothing more is read from that client.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final

from odradek.runtime.turns import call_in_turn

_HANDSHAKE_S: Final = 10.0
"""Limit of a TLS handshake, and of the end of a TLS connection."""
MOST_RECORDS_AT_ONCE: Final = 32
"""Limit of records in a read that waits for no turn: 0.25 ms. The largest read from a client of long ones has 17."""
MOST_RECORDS_IN_TURN: Final = 512
"""Limit of records in a turn: 4 ms."""
_MOST_BYTES: Final = 256 * 1024
"""Limit of bytes in a read, asyncio's and uvloop's."""
_HEADER_BYTES: Final = 5
_SSL2_HELLO: Final = 0x80
"""The first byte of a ClientHello that is in no record is this or more. OpenSSL accepts such a one, Kafka does not."""
_NO_LIMIT: Final = 1 << 30


async def open_tls(protocol: asyncio.BaseProtocol, accepted: socket.socket, context: ssl.SSLContext) -> None:
    """Connect `protocol` to a client by TLS. Raises `OSError` if the handshake fails, or takes too long."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    tls = _tls_protocol(loop)(
        loop, protocol, context, over, server_side=True,
        ssl_handshake_timeout=_HANDSHAKE_S, ssl_shutdown_timeout=_HANDSHAKE_S,
    )  # fmt: skip
    transport, _ = await loop.connect_accepted_socket(lambda: _RecordReader(tls, over), accepted)
    try:
        await over
    except BaseException:
        transport.abort()
        raise


class _RecordReader(asyncio.BufferedProtocol):
    """Passes on to `tls` what the client sends; `over` is done after the handshake."""

    def __init__(self, tls: Any, over: "asyncio.Future[None]") -> None:
        self._tls = tls
        self._over = over
        self._transport: Any = None
        self._space: memoryview = tls.get_buffer(_MOST_BYTES)  # it stays the same
        self._is_open = False
        self._waiting = memoryview(b"")
        self._next = 0
        """Where the next record begins, counted from the next byte; below 0 if that is within the record's header."""
        self._last = 0
        """The last byte, if `_next` is -4."""
        self.get_buffer, self._pass_on = tls.get_buffer, tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received, self.pause_writing = tls.eof_received, tls.pause_writing  # type: ignore[method-assign]
        self.resume_writing = tls.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._tls.connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        space = self._space
        if self._waiting:  # the TLS resumed reading, which it had paused, too
            self._transport.pause_reading()
            self._waiting = memoryview(bytes(self._waiting) + bytes(space[:nbytes]))
            return
        if self._is_open:
            if not self._next and nbytes == _HEADER_BYTES + (space[3] << 8 | space[4]):  # one record, as most often
                self._pass_on(nbytes)
                return
            after = self._skip(space, nbytes, MOST_RECORDS_AT_ONCE)
            if after + _HEADER_BYTES > nbytes:
                self._next, self._last = after - nbytes, space[nbytes - 1]
                self._pass_on(nbytes)
                return
        self._transport.pause_reading()
        self._waiting = memoryview(bytes(space[:nbytes]))
        if not self._is_open and not self._next and space[0] >= _SSL2_HELLO:
            self._over.cancel()
            return
        call_in_turn(self._take_turn)

    def _skip(self, data: memoryview, size: int, most: int) -> int:
        """Return where the next record begins after at most `most` ones, or a place beyond `size`."""
        place = self._next
        if place == 1 - _HEADER_BYTES:
            place += _HEADER_BYTES + (self._last << 8 | data[0])
        for _ in range(most):
            if place + _HEADER_BYTES > size:
                break
            place += _HEADER_BYTES + (data[place + 3] << 8 | data[place + 4])
        return place

    def _take_turn(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        data = self._waiting
        after = self._skip(data, len(data), MOST_RECORDS_IN_TURN)
        end = after if after + _HEADER_BYTES <= len(data) else len(data)
        self._next, self._last = after - end, data[end - 1]
        self._space[:end], self._waiting = data[:end], data[end:]
        self._pass_on(end)
        if self._waiting:
            call_in_turn(self._take_turn)
        elif self._transport is not None and not self._transport.is_closing():
            self._resume_reading()

    def _resume_reading(self) -> None:
        self._is_open = self._over.done()
        if not self._is_open:
            self._transport.resume_reading()
            return
        application = self._tls._get_app_transport()
        application.set_read_buffer_limits(_NO_LIMIT, _NO_LIMIT)
        self._transport.resume_reading()
        application.set_read_buffer_limits()  # the TLS may have paused reading, and does so again if it has to

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tls.connection_lost(exc)


def _tls_protocol(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the class of the event loop's own TLS."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return SSLProtocol
    from uvloop.loop import SSLProtocol as OfUvloop  # type: ignore[attr-defined]

    return OfUvloop
