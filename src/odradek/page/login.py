"""The login: a user's SASL credentials of the cluster make a session, if a broker accepts them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.clients import Admin
from odradek.model import AuthenticationError, ConfigurationError
from odradek.page.sessions import Session, Sessions, cookie_name
from odradek.page.settings import PageSettings, login_settings
from odradek.runtime import Clock

_MOST_CHARACTERS: Final = 1000
_MOST_FAILED: Final = 20
"""Limit of failed logins of one user from one address in a minute."""
_MOST_OF_ADDRESS: Final = 200
"""Limit of failed logins from one address, which may be a proxy of many users."""
_MOST_COUNTED: Final = 10_000


class Attempts:
    """Counts the logins of a minute that failed or are still running, by address, and by address and user.

    If there are too many to count, those with the fewest attempts are forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._count: Counter[tuple[str, str]] = Counter()

    def begin(self, address: str, user: str) -> None:
        """Count an attempt. Raises `ConfigurationError` beyond the limit."""
        if (now := self._clock.monotonic()) >= self._until:
            self._until, self._count = now + 60, Counter()
        if self._count[address, user] >= _MOST_FAILED or self._count[address, ""] >= _MOST_OF_ADDRESS:
            raise ConfigurationError("too many logins from this address have failed: try again in a minute")
        self._count.update([(address, user), (address, "")])
        if len(self._count) > _MOST_COUNTED:
            self._count = Counter(dict(self._count.most_common(_MOST_COUNTED // 2)))

    def succeed(self, address: str, user: str) -> None:
        """Subtract an attempt whose credentials were right."""
        self._count.subtract([(address, user), (address, "")])


async def log_in(request: Request, sessions: Sessions, settings: PageSettings, attempts: Attempts) -> Response:
    """Return the response to a login form, with the new session's cookie. Raises `AuthenticationError` and others."""
    form = request.scope["form"]
    user, password = form.get("user", "").strip(), form.get("password", "")
    if not user or not password or max(len(user), len(password)) > _MOST_CHARACTERS:
        raise ConfigurationError("a login needs a user and a password")
    address = request.client.host if request.client is not None else ""
    attempts.begin(address, user)
    client = await _accepted(login_settings(settings.client, user, password))
    attempts.succeed(address, user)
    session = await sessions.add(client, user)
    response = RedirectResponse(inside(request.query_params.get("next", "/")), HTTPStatus.SEE_OTHER)
    is_secure = request.url.scheme == "https"
    cookie = cookie_name("session", request.scope["port"])
    response.set_cookie(cookie, session.key, httponly=True, samesite="strict", secure=is_secure)
    return response


async def _accepted(candidates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first settings that a broker accepts. Raises `AuthenticationError` if it refuses all."""
    refusals: list[str] = []
    for client in candidates:
        try:
            async with Admin(**client):
                return client
        except AuthenticationError as error:
            refusals.append(str(error))
    if len(set(refusals)) == 1:  # such as a certificate that is not trusted
        raise AuthenticationError(refusals[0])
    mechanisms = ", ".join(each["sasl_mechanism"] for each in candidates)
    raise AuthenticationError(f"the user or the password is wrong, or the cluster offers none of {mechanisms}")


async def log_out(session: Session, sessions: Sessions, port: str) -> Response:
    """End a session; the browser forgets its cookie."""
    await sessions.remove(session)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(cookie_name("session", port), httponly=True, samesite="strict")
    return response


def inside(address: str) -> str:
    """Return the address if it is one of this page, otherwise "/"."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    is_inside = not parts.scheme and not parts.netloc and address.startswith("/") and address[1:2] not in ("/", "\\")
    return address if is_inside and address.isprintable() else "/"
