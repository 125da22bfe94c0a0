"""As much of HTTP/1.1 as a scraper and a probe need: GET and HEAD, one request for each connection.

Everything has a limit: the head's bytes, the time that a client may take, the clients at one time, the answers that are
worked on. Whoever is beyond them is closed without a word; when there are too many clients, the one goes that has been
there longest and asked for nothing yet, so that idle connections never keep a probe out. What is asked for by which
path is the caller's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

from odradek.model.values import dataclass

_log = logging.getLogger("odradek.metrics")
_LARGEST_HEAD_BYTES: Final = 8192
_PATIENCE_S: Final = 30.0
"""For the question, its answer and the reading of it together; a scraper gives up after 10 s."""
_MOST_CLIENTS: Final = 64
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back."""

    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    body: bytes


Respond = Callable[[str, str], Awaitable[Answer]]
"""From a path and the header Accept to an answer."""


class HttpService:
    """Makes connections, and remembers those that are open."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self._open: dict[HttpConnection, None] = {}

    def connection(self) -> "HttpConnection":
        """A factory of protocols, for `listen`."""
        return HttpConnection(self)

    def admit(self, connection: "HttpConnection") -> bool:
        """Whether there is room for one more, if need be in the place of one that has not asked yet."""
        if len(self._open) >= _MOST_CLIENTS:
            silent = next((each for each in self._open if not each.has_asked), None)
            if silent is None:
                return False
            self.dismiss(silent)
            silent.close()
        self._open[connection] = None
        return True

    def dismiss(self, connection: "HttpConnection") -> None:
        """A client has gone."""
        self._open.pop(connection, None)

    def close(self) -> None:
        """Close all connections at once."""
        for connection in tuple(self._open):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """One client: reads a head, answers, closes."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether its question came in full, and an answer is on its way."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        # Not an isinstance check: uvloop's transports are asyncio's by behaviour only.
        self._transport = cast("asyncio.Transport", transport)
        if not self._service.admit(self):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self.close)

    def data_received(self, data: bytes) -> None:
        """See asyncio. What comes after a whole head is ignored: nobody here takes a body, or a second question."""
        if self._task is not None:
            return
        if len(self._head) + len(data) > _LARGEST_HEAD_BYTES:
            self.close()
            return
        self._head += data
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self._task = asyncio.get_running_loop().create_task(self._answer(bytes(self._head)))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._service.dismiss(self)

    def close(self) -> None:
        """Close at once."""
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
                _log.exception("%s can't be answered", path)
                answer = Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"see the log\n")
        if self._transport is not None:
            self._transport.write(encode_answer(answer, with_body=method != "HEAD"))
            self._transport.close()


def parse_head(head: bytes) -> tuple[str, str, str]:
    """`(method, path without its query, Accept)`; empty where the head does not say, or is no head."""
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
    """The bytes to send."""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n"
    )
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head += "Allow: GET, HEAD\r\n"
    return head.encode() + b"\r\n" + (answer.body if with_body else b"")
