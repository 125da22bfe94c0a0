"""The page's server: uvicorn's HTTP protocol on a listener of the runtime, in the caller's event loop."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from odradek.model import address_text
from odradek.page.app import PageApp
from odradek.page.clusters import ClusterPages
from odradek.runtime import Listener, Runtime
from odradek.runtime.listening import listening_error

_MOST_CONNECTIONS: Final = 1000
"""Limit of open connections; a request beyond it gets 503."""
_MOST_OF_ADDRESS: Final = _MOST_CONNECTIONS // 2
"""Limit of open connections from one address, which may be a proxy's."""
_WHOLE_REQUEST_S: Final = 20.0
"""Limit of the time from a request's first byte, or a connection's start, until its body has arrived."""
_log = logging.getLogger("odradek.page")


class _Connection(H11Protocol):
    """A connection that is closed if a request does not arrive whole in time, or its address has too many."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        hosts = [each.client and each.client[0] for each in self.connections if isinstance(each, H11Protocol)]
        if hosts.count(host) > _MOST_OF_ADDRESS:
            transport.close()
            return
        self._timer = self.loop.call_later(_WHOLE_REQUEST_S, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_whole = self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}
        if is_whole and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif not is_whole and self._timer is None:
            self._timer = self.loop.call_later(_WHOLE_REQUEST_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()


class PageServer:
    """Serves one page; it has no threads and no signal handlers."""

    def __init__(self, app: PageApp | ClusterPages, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._state = ServerState()
        self._listener: Listener | None = None
        self._config = Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", limit_concurrency=_MOST_CONNECTIONS,
            proxy_headers=False, server_header=False, date_header=False, timeout_keep_alive=30,
        )  # fmt: skip
        # What it warns of are broken requests of clients.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").addFilter(_is_fault)
        self._config.load()

    @property
    def port(self) -> int:
        assert self._listener is not None, "the page is not open"
        return self._listener.port

    async def open(self, host: str, port: int, tls: Callable[[], ssl.SSLContext] | None = None) -> str:
        """Listen on `port` (0: any free one), and return the page's address.

        Raises `ConfigurationError` if the port is not available.
        """
        try:
            self._listener = await self._runtime.network.listen(self._connection, host, port, tls=tls)
        except OSError as error:
            raise listening_error(host, port, error, " for the page") from None
        address = f"{'http' if tls is None else 'https'}://{address_text(host or 'localhost', self.port)}/"
        _log.info("page at %s", address)
        return address

    async def close(self) -> None:
        """Close all connections, and the clients of the sessions."""
        if self._listener is not None:
            self._listener.close()
        await self._app.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connection(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", _Connection(self._config, self._state, {}))


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a log record is none of a request that `close` has cancelled."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)
