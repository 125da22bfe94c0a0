"""Requests to a page's ASGI application without a network, as a browser would send them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from odradek.page.app import PageApp
from odradek.page.settings import PageSettings
from odradek.page.view import View
from odradek.page.views import VIEWS
from odradek.runtime import Clock, system_runtime


class Answer(Struct, frozen=True, kw_only=True):
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str


class Visitor:
    """One browser: it keeps cookies, and asks as `host`."""

    def __init__(self, app: PageApp, host: str = "127.0.0.1:8080") -> None:
        self.app = app
        self.host = host
        self.cookies: dict[str, str] = {}

    async def get(self, address: str, **headers: str) -> Answer:
        return await self.ask("GET", address, headers=headers)

    async def post(self, address: str, form: Mapping[str, str], token: str | None = None, **headers: str) -> Answer:
        """Post a form, with the token of the session without login unless another one is given."""
        csrf = self.token if token is None else token
        body = urlencode({"csrf": csrf, **form}).encode()
        return await self.ask("POST", address, body, {"content_type": "application/x-www-form-urlencoded", **headers})

    @property
    def token(self) -> str:
        session = self.app.sessions.find("; ".join(f"{name}={value}" for name, value in self.cookies.items()), "8080")
        return self.app.sessions.login_token if session is None else session.csrf_token

    async def ask(
        self, method: str, address: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send any request; a name's underscores are dashes in the header."""
        sent: list[dict[str, Any]] = []
        asked = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if asked.is_set():
                await asyncio.Event().wait()
            asked.set()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(self._scope(method, address, headers or {}), receive, send)
        answer = Answer(
            status=sent[0]["status"],
            headers={name.decode(): value.decode() for name, value in sent[0]["headers"]},
            text=b"".join(each.get("body", b"") for each in sent[1:]).decode(),
        )
        for name, value in sent[0]["headers"]:
            if name == b"set-cookie":
                key, _, rest = value.decode().partition("=")
                self.cookies[key] = rest.partition(";")[0]
                if "max-age=0" in rest.lower():
                    del self.cookies[key]
        return answer

    @asynccontextmanager
    async def watching(self, address: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
        """Yield the parts that the address's stream sends, until the block ends, which closes the connection."""
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            chunks.put_nowait(message.get("body", b""))

        scope = self._scope("GET", address, {"accept": "text/event-stream"})
        task = asyncio.create_task(self.app(scope, receive, send))
        try:
            yield _parts(chunks)
        finally:
            left.set()
            await task

    def _scope(self, method: str, address: str, headers: Mapping[str, str]) -> dict[str, Any]:
        path, _, query = address.partition("?")
        given = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "server": ("127.0.0.1", 8080),
            "client": ("127.0.0.1", 50_000),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }


async def _parts(chunks: "asyncio.Queue[bytes]") -> AsyncIterator[dict[str, str]]:
    while True:
        event, _, data = (await chunks.get()).decode().strip().partition("\n")
        if event == "event: part":
            yield json.loads(data.removeprefix("data: "))
        elif event == "event: end":
            return


@asynccontextmanager
async def visiting(
    settings: PageSettings | None = None, views: tuple[View, ...] = VIEWS, clock: Clock | None = None
) -> AsyncIterator[Visitor]:
    """Yield a visitor of a new page."""
    runtime = system_runtime()
    app = PageApp(settings or PageSettings(), runtime if clock is None else replace(runtime, clock=clock), views)
    try:
        yield Visitor(app)
    finally:
        await app.close()
