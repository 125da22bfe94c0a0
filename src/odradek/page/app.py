"""The page as an ASGI application: routes of every view, static files, login; errors become sentences."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from odradek.metadata.store import NoNode
from odradek.model import AuthenticationError, ErrorCode, KafkaError, OdradekError, UnavailableError
from odradek.page.live import LiveParts, Parts
from odradek.page.login import Attempts, inside, log_in, log_out
from odradek.page.playing import Plays
from odradek.page.protection import LOGIN, Protection
from odradek.page.readings import Readings, pause_s
from odradek.page.rendering import STATIC_TYPES, Renderer
from odradek.page.sessions import Session, Sessions, cookie_name
from odradek.page.settings import PageSettings
from odradek.page.view import Action, Done, Page, PageRequest, View
from odradek.page.views import VIEWS
from odradek.runtime import Runtime

_log = logging.getLogger("odradek.page")
_MOST_MESSAGE: Final = 1000
_MOST_POLLERS: Final = 500
"""Limit of the addresses that one session, or all users of a page without logins, watch at the same time."""
_NOT_FOUND: Final = {ErrorCode.unknown_topic_or_partition, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_id}
_WRONG: Final = {ErrorCode.invalid_topic_exception, ErrorCode.offset_out_of_range}
"""Errors that a wrong address causes."""
PROBLEM: Final = "problem"
"""The id of the element that says what prevents the page from being read."""


class PageApp:
    """The ASGI application of a page, and what it keeps: sessions and live parts. `close` ends both."""

    def __init__(self, settings: PageSettings, runtime: Runtime, views: Iterable[View] = VIEWS) -> None:
        self.sessions = Sessions(settings, runtime)
        self.live = LiveParts()
        self.readings = Readings(runtime.clock)
        self.plays = Plays()
        self._attempts = Attempts(runtime.clock)
        self._settings = settings
        self._runtime = runtime
        self._renderer = Renderer(settings.cluster)
        self._views = tuple(views)
        routes = [Route("/static/{name}", self._static)]
        routes += [Route(LOGIN, self._login, methods=["GET", "POST"]), Route("/logout", self._logout, methods=["POST"])]
        for view in self._views:
            pages = {page.path: page for page in view.pages}
            routes += [Route(each.path, self._page(view, each)) for each in view.pages]
            routes += [
                Route(each.path, self._action(view, each, pages.get(each.path)), methods=["POST"])
                for each in view.actions
            ]
        starlette = Starlette(routes=routes, exception_handlers={404: self._no_such_page, Exception: self._fault})
        self._app = Protection(starlette, self.sessions, settings.host_names, settings.cluster)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End all streams, and close the clients of all sessions."""
        await self.live.close()
        await self.readings.close()
        await self.plays.close()
        await self.sessions.close()

    # ---- pages --------------------------------------------------------------------------------------------------

    def _page(self, view: View, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            session = request.scope["session"]
            asked = self._asked(request, session)
            values = self._values(view, page, asked, message=_message(request))
            if page.operator and not session.may_change:
                return self._problem_page(values, _NO_RIGHTS, HTTPStatus.FORBIDDEN)
            if "text/event-stream" in request.headers.get("accept", "") and page.live:
                return self._stream(view, page, asked)
            response = await self._shown(page, asked, values)
            if (cookie := _message_cookie(request)) in request.cookies:
                response.delete_cookie(cookie, httponly=True, samesite="strict")
            return response

        return endpoint

    async def _shown(self, page: Page, asked: PageRequest, values: dict[str, Any]) -> Response:
        try:
            data = await page.data(asked)
        except OdradekError as error:
            return self._problem_page(values, _sentence(error), _status(error))
        if isinstance(data, Response):
            return data
        status = HTTPStatus.BAD_REQUEST if values["problem"] else HTTPStatus.OK
        return HTMLResponse(self._renderer.page(page.template, values | {"data": data}), status)

    def _problem_page(self, values: Mapping[str, Any], sentence: str, status: HTTPStatus) -> Response:
        asked = values["asked"]
        again = (
            asked.address if asked is not None and not asked.form and status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
        )
        return HTMLResponse(
            self._renderer.page("problem.html", {**values, "problem": sentence, "again": again}), status
        )

    def _values(
        self, view: View | None, page: Page | None, asked: PageRequest | None, *, message: str = "", problem: str = ""
    ) -> dict[str, Any]:
        return {
            "views": [] if asked is None else [each for each in self._views if each.title],
            "view": view,
            "live": page is not None and bool(page.live),
            "session": None if asked is None else asked.session,
            "asked": asked,
            "message": message,
            "problem": problem,
            "cluster": self._settings.bootstrap_servers,
            "options": self._settings.options,
            "settings": self._settings,
            "again": "",
        }

    def _asked(self, request: Request, session: Session) -> PageRequest:
        return PageRequest(
            session=session,
            settings=self._settings,
            runtime=self._runtime,
            tree=self.sessions.tree,
            readings=self.readings,
            plays=self.plays,
            address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            path=request.path_params,
            query=dict(request.query_params),
            form=request.scope["form"],
        )

    # ---- live parts ---------------------------------------------------------------------------------------------

    def _stream(self, view: View, page: Page, asked: PageRequest) -> Response:
        if self.live.of_session(asked.session.key) >= _MOST_POLLERS:
            return PlainTextResponse("too many open pages: close some\n", HTTPStatus.TOO_MANY_REQUESTS)
        values = self._values(view, page, asked)

        async def updates() -> AsyncIterator[Parts]:
            before = None
            async with aclosing(self._updates(page, asked)) as readings:  # type: ignore[type-var]
                async for data in readings:
                    if page.updates is None and data == before:
                        continue  # unchanged: rendering costs more than reading
                    before = data
                    if isinstance(data, OdradekError):
                        yield {PROBLEM: self._renderer.block("base.html", PROBLEM, {"problem": _sentence(data)})}
                        continue
                    parts = {
                        name: self._renderer.block(page.template, name, {**values, "data": data}) for name in page.live
                    }
                    yield {PROBLEM: "", **parts}

        events = self.live.stream((asked.session.key, asked.address), updates)
        return StreamingResponse(events, media_type="text/event-stream", headers={"vary": "accept"})

    async def _updates(self, page: Page, asked: PageRequest) -> AsyncIterator[Any]:
        """Yield a page's data again and again, or the error that prevents it."""
        if page.updates is not None:
            try:
                async with aclosing(page.updates(asked)) as updates:  # type: ignore[type-var]
                    async for data in updates:
                        yield data
            except OdradekError as error:
                yield error
            return
        interval_s = self._settings.interval_s if page.interval_s is None else page.interval_s
        while True:
            began_s = self._runtime.clock.monotonic()
            try:
                data = await page.data(asked)
            except OdradekError as error:
                data = error
            yield data
            await asyncio.sleep(pause_s(interval_s, self._runtime.clock.monotonic() - began_s))

    # ---- actions ------------------------------------------------------------------------------------------------

    def _action(self, view: View, action: Action, page: Page | None) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            asked = self._asked(request, request.scope["session"])
            if action.operator and not asked.session.may_change:
                return self._problem_page(self._values(view, None, asked), _NO_RIGHTS, HTTPStatus.FORBIDDEN)
            try:
                done = await action.act(asked)
            except OdradekError as error:
                values = self._values(view, page, asked, problem=_sentence(error))
                if page is None:
                    return self._problem_page(values, _sentence(error), HTTPStatus.BAD_REQUEST)
                return await self._shown(page, asked, values)
            finally:
                self.readings.forget()
            return _redirect(request, done)

        return endpoint

    # ---- logins -------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        if not self._settings.requires_login:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        values = {
            **self._values(None, None, None),
            "csrf": self.sessions.login_token,
            "next": inside(request.query_params.get("next", "/")),
            "user": request.scope["form"].get("user", ""),
        }
        if request.method == "POST":
            try:
                return await log_in(request, self.sessions, self._settings, self._attempts)
            except OdradekError as error:
                values["problem"] = _sentence(error)
        status = HTTPStatus.UNAUTHORIZED if values["problem"] else HTTPStatus.OK
        return HTMLResponse(self._renderer.page("login.html", values), status)

    async def _logout(self, request: Request) -> Response:
        session = request.scope["session"]
        if session is None or not self._settings.requires_login:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        response = await log_out(session, self.sessions, request.scope["port"])
        await self.live.end(session.key)
        return response

    # ---- the rest -----------------------------------------------------------------------------------------------

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._renderer.static.get(name)
        if content is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        suffix = name[name.rindex(".") :]
        headers = {"cache-control": "public, max-age=31536000, immutable"}  # the address has the content's hash
        return Response(content, media_type=STATIC_TYPES[suffix], headers=headers)

    async def _no_such_page(self, request: Request, _error: Exception) -> Response:
        values = self._values(None, None, self._asked(request, request.scope["session"]))
        return self._problem_page(values, f"There is no page {request.url.path}.", HTTPStatus.NOT_FOUND)

    async def _fault(self, request: Request, error: Exception) -> Response:
        _log.error("A page has failed: %s", request.url.path, exc_info=error)
        values = self._values(None, None, self._asked(request, request.scope["session"]))
        sentence = "This page has a fault. The log of the page has the details."
        return self._problem_page(values, sentence, HTTPStatus.INTERNAL_SERVER_ERROR)


_NO_RIGHTS: Final = (
    "You are a viewer of this page, and only operators may change the cluster: odradek page --role operator."
)


def _sentence(error: OdradekError) -> str:
    """Return an error's text as one sentence."""
    if isinstance(error, AuthenticationError):
        return f"The cluster refuses the login: {error}"
    return " ".join(str(error).split())


def _status(error: OdradekError) -> HTTPStatus:
    if isinstance(error, UnavailableError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, NoNode) or (isinstance(error, KafkaError) and error.code in _NOT_FOUND):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, KafkaError) and error.code in _WRONG:
        return HTTPStatus.BAD_REQUEST
    if isinstance(error, KafkaError) and error.code.name.endswith("authorization_failed"):
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.BAD_GATEWAY if isinstance(error, KafkaError) else HTTPStatus.BAD_REQUEST


def _message(request: Request) -> str:
    return unquote(request.cookies.get(_message_cookie(request), ""))[:_MOST_MESSAGE]


def _message_cookie(request: Request) -> str:
    """Return the name of the cookie with the sentence of an action, which the next page shows."""
    return cookie_name("message", request.scope["port"])


def _redirect(request: Request, done: Done) -> Response:
    response = RedirectResponse(done.address, HTTPStatus.SEE_OTHER)
    if done.message:
        text = quote(done.message[:_MOST_MESSAGE])
        response.set_cookie(_message_cookie(request), text, max_age=60, httponly=True, samesite="strict")
    return response
