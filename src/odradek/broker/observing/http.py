"""A minimal HTTP/1.1 server for scrapers and probes: GET and HEAD, one request per connection.

The size of a head, the time per connection and the number of connections are bounded; connections beyond the bounds are
closed without a response. When there are too many connections, the oldest one without a request is closed, so that idle
connections cannot block a probe.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

from msgspec import Struct

_log = logging.getLogger("odradek.metrics")
_MAX_HEAD_BYTES: Final = 8192
_TIMEOUT_S: Final = 30.0
"""Time-out of a whole connection; a scraper's own time-out is 10 s."""
_MAX_CONNECTIONS: Final = 64
TEXT: Final = "text/plain; charset=utf-8"


class Answer(Struct, frozen=True, kw_only=True):
    """An HTTP response."""

    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    body: bytes


Respond = Callable[[str, str], Awaitable[Answer]]
"""Maps a path and the Accept header to a response."""


class HttpService:
    """The server's open connections; `respond` answers their requests."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self._open: dict[HttpConnection, None] = {}

    def connection(self) -> "HttpConnection":
        """Return a new protocol, for `listen`."""
        return HttpConnection(self)

    def admit(self, connection: "HttpConnection") -> bool:
        """Add a connection, and return whether it was added. If there are too many, close an idle one first."""
        if len(self._open) >= _MAX_CONNECTIONS:
            idle = next((each for each in self._open if not each.is_responding), None)
            if idle is None:
                return False
            self.dismiss(idle)
            idle.close()
        self._open[connection] = None
        return True

    def dismiss(self, connection: "HttpConnection") -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        """Close all connections at once."""
        for connection in tuple(self._open):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """One connection: reads a request's head, sends the response, and closes."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_responding(self) -> bool:
        """Whether the request was received and is being answered."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or abort it if there are too many."""
        # Not an isinstance check: uvloop's transports do not inherit asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if not self._service.admit(self):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_S, self.close)

    def data_received(self, data: bytes) -> None:
        """Collect the request's head, then respond; later bytes are ignored."""
        if self._task is not None:
            return
        if len(self._head) + len(data) > _MAX_HEAD_BYTES:
            self.close()
            return
        self._head += data
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self._task = asyncio.get_running_loop().create_task(self._answer(bytes(self._head)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._service.dismiss(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, head: bytes) -> None:
        method, path, accept = parse_head(head)
        if method not in {"GET", "HEAD"}:
            answer = Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"GET or HEAD\n")
        else:
            try:
                answer = await self._service.respond(path, accept)
            except Exception:
                _log.exception("Failed to respond to %s", path)
                answer = Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"see the log\n")
        if self._transport is not None:
            self._transport.write(encode_answer(answer, with_body=method != "HEAD"))
            self._transport.close()


def parse_head(head: bytes) -> tuple[str, str, str]:
    """Return `(method, path without query, Accept)`; parts missing in a malformed head are empty."""
    first, *lines = head.decode("latin-1").splitlines() or [""]
    method, _, rest = first.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    accept = ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "accept":
            accept = value.strip()
    return method, path, accept


def encode_answer(answer: Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n"
    )
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head += "Allow: GET, HEAD\r\n"
    return head.encode() + b"\r\n" + (answer.body if with_body else b"")
