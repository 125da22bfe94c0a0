"""PLAIN (RFC 4616): the client sends user name and password as they are.

```
authorization id (empty, or the user name) | 0 | user name | 0 | password
```
"""

import hmac
from collections.abc import Mapping

from odradek.security.sasl.exchange import invalid_credentials, invalid_token


class PlainClient:
    """The client's side of one exchange."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        del challenge
        token, self._token = self._token, None
        return token


class PlainServer:
    """The server's side of one exchange; `passwords` are by user name."""

    mechanism = "PLAIN"
    expires_ms: int | None = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user = ""
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
        try:
            authorization_id, user, password = token.decode().split("\0")
        except ValueError:
            raise invalid_token(self.mechanism) from None
        expected = self._passwords.get(user)
        # A user that does not exist takes as long as one that does.
        is_right = hmac.compare_digest(password.encode(), (expected or "").encode())
        if not is_right or not expected or authorization_id not in {"", user}:
            raise invalid_credentials(self.mechanism)
        self.user = user
        return b""
