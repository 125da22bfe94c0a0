"""The SASL exchange of one connection, and the end of its session.

```
HANDSHAKE       SaslHandshake ─▶ EXCHANGE or, for a mechanism that is not enabled, FAILED; ApiVersions is served, too
EXCHANGE        SaslAuthenticate ─▶ EXCHANGE, AUTHENTICATED or, for a refused client, FAILED
AUTHENTICATED   every request is served; SaslHandshake ─▶ EXCHANGE (KIP-368): the principal must stay the same
EXPIRED         the session has ended: SaslHandshake ─▶ EXCHANGE, as Kafka lets an idle client renew it late
FAILED          the connection is about to be closed, and nothing is served
```
A connection that is in HANDSHAKE or EXCHANGE for 30 seconds is closed.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from odradek.model import AuthenticationError, ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.runtime import Clock
from odradek.security.sasl.exchange import SaslServer

NewSaslServer = Callable[[], SaslServer]


_LOGIN_S: Final = 30.0
"""Limit of an authentication. Java's clients give up after as long (`socket.connection.setup.timeout.max.ms`)."""
_TOO_SLOW: Final = f"the client did not authenticate within {_LOGIN_S:.0f} s"


class State(Enum):
    """A state of the exchange, with the APIs that are served in it; None for all."""

    HANDSHAKE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
    EXCHANGE = frozenset({ApiKey.SASL_AUTHENTICATE})
    AUTHENTICATED = None
    EXPIRED = frozenset({ApiKey.SASL_HANDSHAKE})
    FAILED = frozenset[ApiKey]()


class SessionAuthentication:
    """The exchange of one connection. `servers` make the server's side of each enabled mechanism.

    `max_session_ms` is `connections.max.reauth.ms`, 0 for no limit. `suspend` is called when a session ends or its
    renewal begins, `authenticated` when it ends well, `close` with the reason when an authentication takes too long.
    """

    def __init__(
        self,
        servers: Mapping[str, NewSaslServer],
        clock: Clock,
        *,
        max_session_ms: int,
        suspend: Callable[[], object],
        close: Callable[[str], object],
        authenticated: Callable[[], object] = lambda: None,
    ) -> None:
        self.state = State.HANDSHAKE
        self.user = ""
        self._servers = servers
        self._clock = clock
        self._max_session_ms = max_session_ms
        self._suspend = suspend
        self._close = close
        self._authenticated = authenticated
        self._exchange: SaslServer | None = None
        self._timer = asyncio.get_running_loop().call_later(_LOGIN_S, close, _TOO_SLOW)

    def serves(self, api_key: int) -> bool:
        """Return whether requests of this API are served now."""
        return self.state.value is None or api_key in self.state.value

    @property
    def is_in_exchange(self) -> bool:
        """Whether a token is expected."""
        return self._exchange is not None

    @property
    def mechanisms(self) -> list[str]:
        return list(self._servers)

    def handshake(self, mechanism: str) -> None:
        """Begin an exchange.

        Raises `KafkaError` UNSUPPORTED_SASL_MECHANISM for a mechanism that is not enabled; nothing is served then.
        """
        self._suspend()
        new_server = self._servers.get(mechanism)
        if new_server is None:
            self.state = State.FAILED
            raise KafkaError(ErrorCode.unsupported_sasl_mechanism)
        self._exchange = new_server()
        if self.state is not State.HANDSHAKE:
            self._restart_timer(_LOGIN_S, self._close, _TOO_SLOW)
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
        self._authenticated()
        return response, self._limit_session(exchange.expires_ms)

    def close(self) -> None:
        self._timer.cancel()

    def _restart_timer(self, delay_s: float, callback: Callable[..., object], *args: str) -> None:
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, callback, *args)

    def _limit_session(self, expires_ms: int | None) -> int:
        limits = [self._max_session_ms] if self._max_session_ms else []
        if expires_ms is not None:
            limits.append(max(expires_ms - self._clock.now_ms(), 1))
        self.close()
        if not limits:
            return 0
        lifetime_ms = min(limits)
        self._restart_timer(lifetime_ms / 1000, self._expire)
        return lifetime_ms

    def _expire(self) -> None:
        self.state = State.EXPIRED
        self._suspend()
