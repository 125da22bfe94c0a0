"""Connections to the other brokers, opened when they are first needed.

A broker's first address in the image is that of the listener for brokers. The next request reopens a connection that
was lost or whose address has changed; callers retry. A broker answers the requests of a connection in order, so
requests that may wait for long get a `purpose`, which has its own connection.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import BrokerImage
from odradek.model import UnavailableError
from odradek.protocol.api import BETWEEN_BROKERS, ApiKey
from odradek.protocol.messages.schemas import Message
from odradek.runtime import Runtime
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity
from odradek.wire.client_connection import ClientConnection, open_connection

_REQUEST_TIMEOUT_MS: Final = 30_000
_SETUP_TIMEOUT_MS: Final = 10_000
_MOST_RESPONSE_BYTES: Final = 128 << 20


class BrokerConnections:
    """One broker's connections to the other brokers. Without `negotiate`, only `exchange` can be used."""

    def __init__(
        self, runtime: Runtime, client_id: str, security: ClientSecurity = NO_SECURITY, *, negotiate: bool = True
    ) -> None:
        self._runtime = runtime
        self._negotiate = negotiate
        self._security = security
        self._client_id = client_id
        self._open: dict[tuple[int, str], tuple[ListenerAddress, asyncio.Task[ClientConnection]]] = {}

    async def request(
        self,
        brokers: Mapping[int, BrokerImage],
        broker_id: int,
        api_key: ApiKey,
        message: Message,
        *,
        purpose: str = "",
    ) -> Any:
        """Send `message` in the highest version that both brokers know, and return the response.

        Raises `UnavailableError` if the broker is not in `brokers`, cannot be reached, or does not respond.
        """
        connection = await self.connection(brokers, broker_id, purpose=purpose)
        return await connection.request(api_key, message)

    async def connection(
        self, brokers: Mapping[int, BrokerImage], broker_id: int, *, purpose: str = ""
    ) -> ClientConnection:
        """Return the connection to a broker, opened if needed. Raises `UnavailableError` if it cannot be reached."""
        broker = brokers.get(broker_id)
        if broker is None:
            raise UnavailableError(f"broker {broker_id} is not in the cluster")
        address = broker.endpoints[0]
        known = self._open.get((broker_id, purpose))
        if known is not None:
            where, opening = known
            if where == address and not (opening.done() and _is_lost(opening)):
                return await _opened(opening)
            _close(opening)
        opening = asyncio.get_running_loop().create_task(self._connect(address), name=f"connecting to {address}")
        self._open[broker_id, purpose] = address, opening
        return await _opened(opening)

    def close_purpose(self, broker_id: int, purpose: str) -> None:
        """Close the connection for `purpose`; requests in flight get `UnavailableError`."""
        known = self._open.pop((broker_id, purpose), None)
        if known is not None:
            _close(known[1])

    async def _connect(self, address: ListenerAddress) -> ClientConnection:
        return await open_connection(
            self._runtime,
            address.host,
            address.port,
            client_id=self._client_id,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            setup_timeout_ms=_SETUP_TIMEOUT_MS,
            max_response_bytes=_MOST_RESPONSE_BYTES,
            negotiate=self._negotiate,
            unlisted=BETWEEN_BROKERS,
            security=self._security,
        )

    def close(self) -> None:
        """Close every connection; requests in flight get `UnavailableError`."""
        for _, opening in self._open.values():
            _close(opening)
        self._open.clear()


async def _opened(opening: "asyncio.Task[ClientConnection]") -> ClientConnection:
    """Wait for `opening`, and return its connection. Raises `UnavailableError`, also if `opening` was cancelled."""
    if not opening.done():
        await asyncio.wait([opening])
    if opening.cancelled():
        raise UnavailableError("the connection was abandoned before it was open")
    return opening.result()


def _is_lost(opening: "asyncio.Task[ClientConnection]") -> bool:
    return opening.cancelled() or opening.exception() is not None or opening.result().closed


def _close(opening: "asyncio.Task[ClientConnection]") -> None:
    if not opening.done():
        opening.cancel()
    elif not _is_lost(opening):
        opening.result().close("the broker stops")
