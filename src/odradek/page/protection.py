"""Protection of the page against other sites: it checks each request before a view gets it, as ASGI middleware.

```
Host          localhost, an IP address, or a name of the settings: a name that an attacker lets point here is refused
method        GET, HEAD, POST
other sites   may link to a page; their scripts, frames and images are refused
names         topics of more than 249 characters, groups of more than 32,767 bytes are refused before a broker is asked
POST          Origin is this page's; a urlencoded form of limited size with the session's token
response      a strict Content-Security-Policy and the like, on every answer
```
"""

import ipaddress
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.model.names import MAX_TOPIC_NAME_LENGTH
from odradek.page.sessions import Sessions, same_text

MOST_FORM_BYTES: Final = 2 << 20
"""Limit of a posted form: a record of a megabyte fits."""
MOST_LOGIN_BYTES: Final = 16 << 10
"""Limit of a posted form without a session: a login."""
_MOST_GROUP_BYTES: Final = 32_767
"""Limit of a string in Kafka's protocol. Kafka has no other limit of a group's id."""
_MOST_FIELDS: Final = 1000
LOGIN: Final = "/login"
_GROUPS: Final = "/groups/"
STATIC: Final = "/static/"
_HEADERS: Final[Mapping[bytes, bytes]] = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",  # with no-referrer, browsers would send forms with `Origin: null`
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_NO_STORE: Final = (b"cache-control", b"no-store")


class Refused(Exception):
    """A request that the page does not accept."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Protection:
    """The middleware. `scope["session"]` is the request's session, `scope["form"]` has the fields of a form."""

    def __init__(self, app: ASGIApp, sessions: Sessions, host_names: Iterable[str], cluster: str = "") -> None:
        self._app = app
        self._cookies = f"-{cluster}" if cluster else ""
        self._sessions = sessions
        self._host_names = {"localhost", *(name.lower() for name in host_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower(), value) for name, value in message.get("headers", ())]
                names = {name for name, _ in own}
                added = [*_HEADERS.items(), *([] if b"cache-control" in names else [_NO_STORE])]
                message["headers"] = [*own, *added]
            await send(message)

        try:
            await self._check(scope, receive)
            if scope["session"] is None and scope["path"] != LOGIN and not scope["path"].startswith(STATIC):
                await _to_login(scope)(scope, receive, protected)
                return
        except Refused as refusal:
            await PlainTextResponse(f"{refusal}\n", refusal.status)(scope, receive, protected)
        else:
            await self._app(scope, receive, protected)

    async def _check(self, scope: MutableMapping[str, Any], receive: Receive) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        scope["port"] = self._checked_port(host) + self._cookies  # which tells the cookies of pages apart
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "the page knows GET, HEAD and POST only")
        _check_sender(headers, scope["method"])
        _check_names(scope)
        session = self._sessions.find(headers.get("cookie", ""), scope["port"])
        if session is not None and not await self._sessions.is_valid(session):
            session = None
        scope["session"] = session
        scope["form"] = {}
        if scope["method"] == "POST":
            own = None if scope["path"] == LOGIN else session
            token = self._sessions.login_token if own is None else own.csrf_token
            most_bytes = MOST_LOGIN_BYTES if own is None else MOST_FORM_BYTES
            scope["form"] = await _form(headers, host, token, receive, most_bytes)

    def _checked_port(self, host: str) -> str:
        """Return the port of a Host header, "" for the default port. Raises `Refused` for an unknown name."""
        name, port = "", None
        with suppress(ValueError):
            parts = urlsplit(f"//{host}")
            port, name = parts.port, (parts.hostname or "").lower()
        if name not in self._host_names and not _is_ip_address(name):
            reason = f"this page is not known as {name[:100]!r}: use its IP address, or start it with --host-name NAME"
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, reason)
        return "" if port is None else str(port)


def _check_sender(headers: Headers, method: str) -> None:
    is_link = (
        method != "POST" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link:
        raise Refused(HTTPStatus.FORBIDDEN, "the request was sent by another site")


def _check_names(scope: Mapping[str, Any]) -> None:
    path: str = scope["path"]
    if not path.startswith(_GROUPS) and max(map(len, path.split("/"))) > MAX_TOPIC_NAME_LENGTH:
        raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"a topic's name has at most {MAX_TOPIC_NAME_LENGTH} characters")
    group_ids = parse_qs(scope["query_string"].decode("latin-1")).get("id", [])
    group_ids += [path.removeprefix(_GROUPS)] if path.startswith(_GROUPS) else []
    if any(len(each.encode()) > _MOST_GROUP_BYTES for each in group_ids):
        raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"a group's id has at most {_MOST_GROUP_BYTES} bytes")


async def _form(headers: Headers, host: str, token: str, receive: Receive, most_bytes: int) -> Mapping[str, str]:
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Refused(HTTPStatus.FORBIDDEN, "the form was sent by another site")
    if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "forms are application/x-www-form-urlencoded")
    try:
        text = (await _body(receive, most_bytes)).decode("ascii")
        form = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the form is not urlencoded UTF-8 text") from None
    if not same_text(form.pop("csrf", ""), token):
        raise Refused(HTTPStatus.FORBIDDEN, "the form is too old: load its page again, and send it again")
    return form


def _to_login(scope: MutableMapping[str, Any]) -> Response:
    """Return the response to a request without a session, which loads the login, and then its own address."""
    if scope["method"] == "POST" or "text/event-stream" in Headers(scope=scope).get("accept", ""):
        return PlainTextResponse("log in first\n", HTTPStatus.UNAUTHORIZED)
    query = scope["query_string"].decode("latin-1")
    address = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"{LOGIN}?{urlencode({'next': address})}", HTTPStatus.SEE_OTHER)


async def _body(receive: Receive, most_bytes: int) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(HTTPStatus.BAD_REQUEST, "the form is incomplete")
        chunks.append(chunk := message.get("body", b""))
        size += len(chunk)
        if size > most_bytes:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a form has at most {most_bytes} bytes")
        if not message.get("more_body", False):
            return b"".join(chunks)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
