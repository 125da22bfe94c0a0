"""The server's side of TLS handshakes, in turns: a signature takes up to 5 ms, and any number of clients may want one.

Until a handshake is over, a protocol between the socket and asyncio's or uvloop's TLS passes on what arrives.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final

from odradek.runtime.turns import call_in_turn

_HANDSHAKE_S: Final = 10.0
"""Limit of a TLS handshake, and of the end of a TLS connection."""


async def open_tls(protocol: asyncio.BaseProtocol, accepted: socket.socket, context: ssl.SSLContext) -> None:
    """Connect `protocol` to a client by TLS. Raises `OSError` if the handshake fails, or takes too long."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    tls = _tls_protocol(loop)(
        loop, protocol, context, over, server_side=True,
        ssl_handshake_timeout=_HANDSHAKE_S, ssl_shutdown_timeout=_HANDSHAKE_S,
    )  # fmt: skip
    transport, _ = await loop.connect_accepted_socket(lambda: _Handshake(tls, over), accepted)
    try:
        await over
    except BaseException:
        transport.abort()
        raise


class _Handshake(asyncio.Protocol):
    """Passes to `tls` what the client sends, each part in a turn, until `over` is done."""

    def __init__(self, tls: Any, over: "asyncio.Future[None]") -> None:
        self._tls = tls
        self._over = over
        self._transport: Any = None
        self.eof_received, self.pause_writing = tls.eof_received, tls.pause_writing  # type: ignore[method-assign]
        self.resume_writing = tls.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._tls.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._transport.pause_reading()
        call_in_turn(lambda: self._pass_on(memoryview(data)))

    def _pass_on(self, data: memoryview) -> None:
        while data and self._transport is not None:
            space = self._tls.get_buffer(len(data))[: len(data)]
            space[:] = data[: len(space)]
            self._tls.buffer_updated(len(space))
            data = data[len(space) :]
        if self._transport is None or self._transport.is_closing():
            return
        if self._over.done():
            self._transport.set_protocol(self._tls)
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tls.connection_lost(exc)


def _tls_protocol(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the class of the event loop's own TLS."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return SSLProtocol
    from uvloop.loop import SSLProtocol as OfUvloop  # type: ignore[attr-defined]

    return OfUvloop
