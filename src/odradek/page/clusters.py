"""Several clusters in one page: `/clusters/NAME/…` has the page of one, with sessions and logins of its own."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import RedirectResponse
from starlette.types import Message, Receive, Scope, Send

from odradek.page.app import PageApp
from odradek.page.rendering import CLUSTERS


class ClusterPages:
    """The ASGI application of several pages; an address outside of them leads to the first one.

    A page receives paths without its prefix, and sets it before the addresses of its own in what it sends.
    """

    def __init__(self, pages: Mapping[str, PageApp]) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        name, slash, rest = scope["path"].removeprefix(CLUSTERS).partition("/")
        page = self._pages.get(name) if slash and scope["path"].startswith(CLUSTERS) else None
        if page is None:
            response = RedirectResponse(f"{CLUSTERS}{next(iter(self._pages))}/", HTTPStatus.SEE_OTHER)
            await response(scope, receive, send)
            return
        prefix = f"{CLUSTERS}{name}".encode()

        async def prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (key, prefix + value if key == b"location" and value.startswith(b"/") else value)
                    for key, value in message["headers"]
                ]
            await send(message)

        await page({**scope, "path": f"/{rest}"}, receive, prefixed)

    async def close(self) -> None:
        for page in self._pages.values():
            await page.close()
