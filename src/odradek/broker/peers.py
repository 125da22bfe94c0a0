"""What a broker asks of the other brokers: a connection to each, made when it is first needed.

A peer is found by the image, at its first listener. A connection that was lost, or that leads to where the peer no
longer is, is made anew with the next request; whether to ask again is the caller's business.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from odradek.config import ListenerAddress
from odradek.metadata.image import BrokerImage
from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.encoder import Message
from odradek.runtime import Runtime
from odradek.wire.outgoing import Connection, open_connection

_REQUEST_TIMEOUT_MS: Final = 30_000
_SETUP_TIMEOUT_MS: Final = 10_000
_MOST_RESPONSE_BYTES: Final = 128 << 20


class Peers:
    """One broker's connections to the others."""

    def __init__(self, runtime: Runtime, broker_id: int) -> None:
        self._runtime = runtime
        self._client_id = f"broker-{broker_id}"
        self._open: dict[int, tuple[ListenerAddress, asyncio.Task[Connection]]] = {}

    async def request(
        self, brokers: Mapping[int, BrokerImage], broker_id: int, api_key: ApiKey, message: Message
    ) -> Any:
        """The answer of a broker to `message`, in the highest version that both know.

        Raises `UnavailableError` if it is not in the cluster, cannot be reached, or does not answer.
        """
        peer = brokers.get(broker_id)
        if peer is None:
            raise UnavailableError(f"broker {broker_id} is not in the cluster")
        connection = await self._connection(broker_id, peer.endpoints[0])
        return await connection.request(api_key, message)

    async def _connection(self, broker_id: int, address: ListenerAddress) -> Connection:
        known = self._open.get(broker_id)
        if known is not None:
            where, opening = known
            if where == address and not (opening.done() and _is_lost(opening)):
                return await asyncio.shield(opening)
            _close(opening)
        opening = asyncio.get_running_loop().create_task(self._connect(address), name=f"connecting to {address}")
        self._open[broker_id] = address, opening
        return await asyncio.shield(opening)

    async def _connect(self, address: ListenerAddress) -> Connection:
        return await open_connection(
            self._runtime,
            address.host,
            address.port,
            client_id=self._client_id,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            setup_timeout_ms=_SETUP_TIMEOUT_MS,
            max_response_bytes=_MOST_RESPONSE_BYTES,
        )

    def close(self) -> None:
        """Close every connection; whoever waits for an answer gets `UnavailableError`."""
        for _, opening in self._open.values():
            _close(opening)
        self._open.clear()


def _is_lost(opening: "asyncio.Task[Connection]") -> bool:
    return opening.cancelled() or opening.exception() is not None or opening.result().closed


def _close(opening: "asyncio.Task[Connection]") -> None:
    if not opening.done():
        opening.cancel()
    elif not _is_lost(opening):
        opening.result().close("the broker stops")
