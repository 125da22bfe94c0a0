"""Listening and connecting with asyncio's transports and protocols."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

from odradek.model.values import dataclass

P = TypeVar("P", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Options of a listening socket and its connections; a buffer size of -1 is the kernel's default."""

    backlog: int = 1024
    """Limit of connections that the kernel queues until they are accepted."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Listener(Protocol):
    """A listening port."""

    @property
    def port(self) -> int:
        """The listening port, also if port 0 was requested."""

    def close(self) -> None:
        """Stop accepting connections; open connections stay."""


class Network(Protocol):
    """Connections to other processes. Protocols may be asyncio's buffered or streaming ones."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, options: ListenOptions | None = None
    ) -> Listener:
        """Listen on `host` and `port` (0: any free one). Raises `OSError` if the port is in use."""

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """Connect. Raises `OSError` if the connection is refused."""


class SystemNetwork:
    """The operating system's sockets on the running event loop."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, options: ListenOptions | None = None
    ) -> Listener:
        loop = asyncio.get_running_loop()
        options = options or ListenOptions()
        server = await loop.create_server(factory, host, port, backlog=options.backlog, start_serving=False)
        sizes = {socket.SO_SNDBUF: options.send_buffer_bytes, socket.SO_RCVBUF: options.receive_buffer_bytes}
        for listening in server.sockets:
            for option, size in sizes.items():
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
        await server.start_serving()
        return _ServerListener(server)

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        transport, protocol = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport, protocol


class _ServerListener:
    """An asyncio server as a `Listener`."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
