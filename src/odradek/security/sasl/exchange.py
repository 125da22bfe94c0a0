"""The interfaces of one SASL exchange, for both sides."""

from typing import Final, Protocol

from odradek.model import AuthenticationError


class SaslClient(Protocol):
    """The client's side of one exchange."""

    mechanism: str

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next token for the server, or None if the exchange is complete; the first challenge is empty.

        Raises `AuthenticationError` if the server's token is invalid, or the server cannot prove who it is.
        """


class SaslServer(Protocol):
    """The server's side of one exchange. `user` is empty until the client is authenticated."""

    mechanism: str
    user: str
    expires_ms: int | None
    """The time at which the client's credentials expire, in milliseconds since the epoch; None if they do not."""

    def step(self, token: bytes) -> bytes:
        """Return the response to the client's token. Raises `AuthenticationError` if the client is refused."""


def invalid_credentials(mechanism: str) -> AuthenticationError:
    """Return the only error about credentials, so that no client learns whether a user exists."""
    return AuthenticationError(f"Authentication failed: invalid credentials with SASL mechanism {mechanism}")


def invalid_token(mechanism: str) -> AuthenticationError:
    """Return the error for a token that the mechanism does not allow."""
    return AuthenticationError(f"Authentication failed: invalid token of SASL mechanism {mechanism}")


LONGEST_NAME: Final = 1024
"""Limit of a user name's characters."""
