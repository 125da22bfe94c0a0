"""A client's security: TLS, and authentication by SASL at the start of a connection and before its session ends.

```
SaslHandshake      mechanism → the broker's mechanisms
SaslAuthenticate   token → token, as often as the mechanism needs; the last one has the session's lifetime (KIP-368)
```
While a session is renewed, other requests wait: a broker expects no other request between these two.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from odradek.model import AuthenticationError, Buffer, ErrorCode, OdradekError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import milliseconds, optional
from odradek.security.sasl.exchange import SaslClient

if TYPE_CHECKING:
    from odradek.wire.client_connection import ClientConnection

_log = logging.getLogger("odradek.clients")
AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_NONE: Final = timedelta()
_RENEWAL: Final = 0.9
"""The part of a session's lifetime after which it is renewed."""
_MOST_STEPS: Final = 10
"""Limit of tokens in one exchange; the longest mechanism has two."""

Login = Callable[[], Awaitable[SaslClient]]
"""Begins an exchange; it may wait for a token. Raises `AuthenticationError` or `UnavailableError`."""

Prove = Callable[[int, int, int, Sequence[Buffer]], bytes]
"""Returns a proof, or nothing: `prove(api_key, version, correlation_id, body)`."""


class ClientSecurity(Struct, frozen=True, kw_only=True):
    """How a client secures its connections: `tls` encrypts them, `login` authenticates the client.

    `prove` returns the proof of a request that a broker sends to another one.
    """

    tls: ssl.SSLContext | None = None
    login: Login | None = None
    prove: Prove | None = None


NO_SECURITY: Final = ClientSecurity()


async def start_session(connection: "ClientConnection", login: Login) -> None:
    """Authenticate, and go on to do so before each session ends.

    Raises `AuthenticationError` if the broker refuses, and `UnavailableError` if it does not answer.
    """
    lifetime_ms = await _authenticate(connection, login)
    if lifetime_ms > 0:
        renewing = asyncio.get_running_loop().create_task(_renew(connection, login, lifetime_ms))
        connection.on_close(lambda _: renewing.cancel())


async def _renew(connection: "ClientConnection", login: Login, lifetime_ms: int) -> None:
    while lifetime_ms > 0:
        await asyncio.sleep(lifetime_ms * _RENEWAL / 1000)
        connection.hold_requests()
        try:
            lifetime_ms = await _authenticate(connection, login)
        except OdradekError as error:
            _log.warning("Failed to renew the session with %s: %s", connection.address, error)
            connection.close(f"its session could not be renewed ({error})")
            return
        finally:
            connection.send_held_requests()


async def _authenticate(connection: "ClientConnection", login: Login) -> int:
    """Authenticate, and return the lifetime of the session in milliseconds, 0 without limit."""
    exchange = await login()
    mechanism = exchange.mechanism
    offer = await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
    if offer.error_code == ErrorCode.unsupported_sasl_mechanism:
        raise AuthenticationError(
            f"broker {connection.address}: it does not offer {mechanism}, but {', '.join(offer.mechanisms) or 'none'}: "
            "set sasl.mechanism"
        )
    if offer.error_code != ErrorCode.none:
        raise AuthenticationError(
            f"broker {connection.address}: it refused SASL ({offer.error_code.name}): its port may have no SASL"
        )
    challenge, lifetime_ms = b"", 0
    for _ in range(_MOST_STEPS):
        token = exchange.step(challenge)
        if token is None:
            break
        response = await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token})
        if response.error_code != ErrorCode.none:
            why = response.error_message or response.error_code.name
            raise AuthenticationError(f"broker {connection.address}: {mechanism}: {why}")
        challenge, lifetime_ms = bytes(response.auth_bytes), milliseconds(optional(response, "session_lifetime", _NONE))
    return lifetime_ms
