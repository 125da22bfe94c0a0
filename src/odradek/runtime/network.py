"""Listening and connecting, with asyncio's own transports and protocols as the currency."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

from odradek.model.values import dataclass

P = TypeVar("P", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Of an open port and the connections that come through it; -1 leaves a buffer's size to the kernel."""

    backlog: int = 1024
    """Connections that the kernel keeps until they are taken."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Listener(Protocol):
    """An open port."""

    @property
    def port(self) -> int:
        """The port that is open; the one that was chosen when 0 was asked for."""

    def close(self) -> None:
        """Take no more connections; those that are open stay."""


class Network(Protocol):
    """How a room reaches another process. Transports are asyncio's, buffered or streaming protocols alike."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, options: ListenOptions | None = None
    ) -> Listener:
        """Open `port` (0: any free one) on `host`. Raises `OSError` if it is taken."""

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """Connect. Raises `OSError` if nobody listens."""


class SystemNetwork:
    """The machine's sockets, on the running event loop."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, options: ListenOptions | None = None
    ) -> Listener:
        """See `Network`."""
        loop = asyncio.get_running_loop()
        options = options or ListenOptions()
        server = await loop.create_server(factory, host, port, backlog=options.backlog, start_serving=False)
        sizes = {socket.SO_SNDBUF: options.send_buffer_bytes, socket.SO_RCVBUF: options.receive_buffer_bytes}
        for listening in server.sockets:
            for option, size in sizes.items():
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)  # what is accepted inherits it
        await server.start_serving()
        return _ServerListener(server)

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """See `Network`."""
        transport, protocol = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport, protocol


class _ServerListener:
    """asyncio's server as a `Listener`."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
