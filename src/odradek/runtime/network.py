"""Listening and connecting, with asyncio's own transports and protocols as the currency."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Listener(Protocol):
    """An open port."""

    @property
    def port(self) -> int:
        """The port that is open; the one that was chosen when 0 was asked for."""

    def close(self) -> None:
        """Take no more connections; those that are open stay."""


class Network(Protocol):
    """How a room reaches another process. Transports are asyncio's, buffered or streaming protocols alike."""

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """Open `port` (0: any free one) on `host`. Raises `OSError` if it is taken."""

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """Connect. Raises `OSError` if nobody listens."""


class SystemNetwork:
    """The machine's sockets, on the running event loop."""

    backlog = 1024

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """See `Network`."""
        loop = asyncio.get_running_loop()
        return _ServerListener(await loop.create_server(factory, host, port, backlog=self.backlog))

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
