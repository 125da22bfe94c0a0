"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a bearer token, which the server checks.

```
n,, | 1 | auth=Bearer TOKEN | 1 | NAME=VALUE | 1 | … | 1
```
The server answers an invalid token with a JSON text, the client sends one byte 1, and the server refuses it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from odradek.model import AuthenticationError
from odradek.security.sasl.exchange import invalid_token

_SEPARATOR: Final = "\x01"


class BearerToken(Struct, frozen=True, kw_only=True):
    """A checked token: the user that it stands for, and when it expires, in milliseconds since the epoch."""

    user: str
    expires_ms: int | None


class OauthBearerClient:
    """The client's side of one exchange."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        items = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in (extensions or {}).items())]
        self._token: bytes | None = f"n,,{_SEPARATOR}{_SEPARATOR.join(items)}{_SEPARATOR}{_SEPARATOR}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        if self._token is not None:
            token, self._token = self._token, None
            return token
        if challenge:
            return _SEPARATOR.encode()  # the server then refuses with its reason
        return None


class OauthBearerServer:
    """The server's side of one exchange. `check` returns the checked token, or raises `AuthenticationError`."""

    mechanism = "OAUTHBEARER"

    def __init__(self, check: Callable[[str], BearerToken]) -> None:
        self.user = ""
        self.expires_ms: int | None = None
        self._check = check
        self._refusal: AuthenticationError | None = None

    def step(self, token: bytes) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        try:
            header, *items = token.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            raise invalid_token(self.mechanism) from None
        fields = dict(item.split("=", 1) for item in items if "=" in item)
        scheme, _, bearer = fields.get("auth", "").partition(" ")
        flag, _, authorization_id = header.partition(",")
        if flag != "n" or scheme.lower() != "bearer" or not bearer or items[-2:] != ["", ""]:
            raise invalid_token(self.mechanism)
        try:
            checked = self._check(bearer.strip(" "))
        except AuthenticationError as error:
            self._refusal = error
            return b'{"status":"invalid_token"}'
        if authorization_id.rstrip(",") not in {"", f"a={checked.user}"}:
            raise AuthenticationError("Authentication failed: the authorization id is not the token's user")
        self.user, self.expires_ms = checked.user, checked.expires_ms
        return b""
