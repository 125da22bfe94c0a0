"""Listening and connecting with asyncio's transports and protocols."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from odradek.runtime.listening import SystemListener, bind
from odradek.runtime.pending_connections import PendingConnections

P = TypeVar("P", bound=asyncio.BaseProtocol)


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Options of a listening socket and its connections; a buffer size of -1 means the kernel's default."""

    backlog: int = 1024
    """Limit of connections that the kernel queues until they are accepted."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    pending: PendingConnections | None = None
    """Counts the TLS handshakes; None: on their own."""


class Listener(Protocol):
    """A listening port."""

    @property
    def port(self) -> int:
        """The listening port, also if port 0 was requested."""

    def close(self) -> None:
        """Stop accepting connections; open connections stay."""


class Network(Protocol):
    """Connections to other processes. Protocols may be asyncio's buffered or streaming ones."""

    @property
    def host_name(self) -> str: ...

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        options: ListenOptions | None = None,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> Listener:
        """Listen on `host` and `port` (0: any free one). Raises `OSError` if the port is in use.

        `tls` returns the context of a new connection's TLS.
        """

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        """Connect. Raises `OSError` if that fails, `ssl.SSLError` among them."""


class SystemNetwork:
    """The operating system's sockets on the running event loop."""

    @property
    def host_name(self) -> str:
        return socket.gethostname()

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        options: ListenOptions | None = None,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> Listener:
        if tls is not None:
            _ignore_late_writes(asyncio.get_running_loop())
        options = options or ListenOptions()
        sockets = await bind(
            host,
            port,
            backlog=options.backlog,
            send_buffer_bytes=options.send_buffer_bytes,
            receive_buffer_bytes=options.receive_buffer_bytes,
        )
        return SystemListener(sockets, factory, tls, options.pending)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        if tls is not None:
            _ignore_late_writes(loop)
        transport, protocol = await loop.create_connection(factory, host, port, ssl=tls)
        return transport, protocol


def _ignore_late_writes(loop: asyncio.AbstractEventLoop) -> None:
    """Do not log that uvloop's TLS wrote to a connection which it had just closed: nothing is lost by it."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")):
            loop.default_exception_handler(context)

    if loop.get_exception_handler() is None:
        loop.set_exception_handler(handle)
