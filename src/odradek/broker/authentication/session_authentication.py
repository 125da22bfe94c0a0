"""The SASL exchange of one connection, and the end of its session.

```
HANDSHAKE       SaslHandshake ─▶ EXCHANGE          only ApiVersions is served, too
EXCHANGE        SaslAuthenticate ─▶ EXCHANGE, AUTHENTICATED or, for a refused client, FAILED
AUTHENTICATED   every request is served; SaslHandshake ─▶ EXCHANGE (KIP-368): the principal must stay the same
FAILED          the connection is about to be closed, and nothing is served
```
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from odradek.model import AuthenticationError, ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.runtime import Clock
from odradek.security.sasl import SaslServer

NewSaslServer = Callable[[], SaslServer]


AUTHENTICATION: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The APIs of authentication."""


class State(Enum):
    """A state of the exchange, with the APIs that are served in it; None for all."""

    HANDSHAKE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
    EXCHANGE = frozenset({ApiKey.SASL_AUTHENTICATE})
    AUTHENTICATED = None
    FAILED = frozenset[ApiKey]()


class SessionAuthentication:
    """The exchange of one connection. `servers` make the server's side of each enabled mechanism.

    `max_session_ms` is `connections.max.reauth.ms`, 0 for no limit. `expire` is called when the session ends before the
    client has renewed it.
    """

    def __init__(
        self,
        servers: Mapping[str, NewSaslServer],
        clock: Clock,
        *,
        max_session_ms: int,
        expire: Callable[[], object],
    ) -> None:
        self.state = State.HANDSHAKE
        self.user = ""
        self._servers = servers
        self._clock = clock
        self._max_session_ms = max_session_ms
        self._expire = expire
        self._exchange: SaslServer | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def serves(self, api_key: int) -> bool:
        """Return whether requests of this API are served now."""
        return self.state.value is None or api_key in self.state.value

    @property
    def is_in_exchange(self) -> bool:
        """Whether a token is expected."""
        return self._exchange is not None

    @property
    def mechanisms(self) -> list[str]:
        """The enabled mechanisms."""
        return list(self._servers)

    def handshake(self, mechanism: str) -> None:
        """Begin an exchange. Raises `KafkaError` UNSUPPORTED_SASL_MECHANISM for a mechanism that is not enabled."""
        new_server = self._servers.get(mechanism)
        if new_server is None:
            raise KafkaError(ErrorCode.unsupported_sasl_mechanism)
        self._exchange = new_server()
        self.state = State.EXCHANGE

    def authenticate(self, token: bytes) -> tuple[bytes, int]:
        """Return the response to a token, and the lifetime of the session in ms: 0 for no limit, or not yet known.

        Raises `AuthenticationError` if the client is refused; nothing is served then.
        """
        exchange = self._exchange
        assert exchange is not None
        try:
            response = exchange.step(token)
            if exchange.user and self.user not in {"", exchange.user}:
                raise AuthenticationError("Authentication failed: a session can only be renewed by the same principal")
        except AuthenticationError:
            self.state = State.FAILED
            raise
        if not exchange.user:
            return response, 0
        self._exchange, self.state, self.user = None, State.AUTHENTICATED, exchange.user
        return response, self._limit_session(exchange.expires_ms)

    def close(self) -> None:
        """Forget the session: its connection is closed."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _limit_session(self, expires_ms: int | None) -> int:
        limits = [self._max_session_ms] if self._max_session_ms else []
        if expires_ms is not None:
            limits.append(max(expires_ms - self._clock.now_ms(), 1))
        self.close()
        if not limits:
            return 0
        lifetime_ms = min(limits)
        self._expiry = asyncio.get_running_loop().call_later(lifetime_ms / 1000, self._expire)
        return lifetime_ms
