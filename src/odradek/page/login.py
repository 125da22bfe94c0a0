"""The login: a user's SASL credentials of the cluster make a session, if a broker accepts them."""

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.clients import Admin
from odradek.model import ConfigurationError
from odradek.page.sessions import COOKIE, Session, Sessions
from odradek.page.settings import PageSettings, login_settings

_MOST_CHARACTERS: Final = 1000


async def log_in(request: Request, sessions: Sessions, settings: PageSettings) -> Response:
    """Return the response to a login form, with the new session's cookie. Raises `AuthenticationError` and others."""
    form = request.scope["form"]
    user, password = form.get("user", "").strip(), form.get("password", "")
    if not user or not password or max(len(user), len(password)) > _MOST_CHARACTERS:
        raise ConfigurationError("a login needs a user and a password")
    client = login_settings(settings.client, user, password)
    async with Admin(**client):
        pass  # a broker accepts the credentials
    session = await sessions.add(client, user)
    response = RedirectResponse(inside(request.query_params.get("next", "/")), HTTPStatus.SEE_OTHER)
    is_secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session.key, httponly=True, samesite="strict", secure=is_secure)
    return response


async def log_out(session: Session, sessions: Sessions) -> Response:
    """End a session; the browser forgets its cookie."""
    await sessions.remove(session)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def inside(address: str) -> str:
    """Return an address of this page: another site's becomes the first view's."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    is_inside = not parts.scheme and not parts.netloc and address.startswith("/") and address[1:2] not in ("/", "\\")
    return address if is_inside and address.isprintable() else "/"
