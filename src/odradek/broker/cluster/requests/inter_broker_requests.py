"""Sends requests that only brokers send to each other, each API in its only version."""

from typing import Any, Final

from odradek.metadata.image import BrokerImage
from odradek.protocol.api import BETWEEN_BROKERS, CONTROLLER_VERSIONS, ApiKey
from odradek.protocol.messages.message_codec import encode_request
from odradek.protocol.messages.schemas import Message
from odradek.runtime import Runtime
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity
from odradek.wire.client_connection import ClientConnection, open_connection

_SETUP_TIMEOUT_MS: Final = 10_000
_MOST_RESPONSE_BYTES: Final = 128 << 20


async def connect(
    runtime: Runtime,
    broker: BrokerImage,
    client_id: str,
    *,
    request_timeout_ms: int,
    security: ClientSecurity = NO_SECURITY,
) -> ClientConnection:
    """Open a connection, without negotiating versions. Raises `UnavailableError` if the broker cannot be reached."""
    address = broker.endpoints[0]
    return await open_connection(
        runtime,
        address.host,
        address.port,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        setup_timeout_ms=_SETUP_TIMEOUT_MS,
        max_response_bytes=_MOST_RESPONSE_BYTES,
        negotiate=False,
        unlisted=BETWEEN_BROKERS,
        security=security,
    )


def encode(api_key: ApiKey, message: Message) -> bytes:
    return encode_request(api_key, CONTROLLER_VERSIONS[api_key], message)


async def send(connection: ClientConnection, api_key: ApiKey, body: bytes, *, timeout_ms: int | None = None) -> Any:
    """Send a request and return the decoded response. `timeout_ms` replaces the connection's default.

    Raises `UnavailableError` if the connection is lost, or the response is late or malformed.
    """
    reply = await connection.exchange(api_key, CONTROLLER_VERSIONS[api_key], (body,), timeout_ms=timeout_ms)
    return connection.decode(api_key, reply)
