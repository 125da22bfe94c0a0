"""Sessions: each has clients of its own with its user's credentials; without login, there is one for all."""

import asyncio
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, TypeVar

from odradek.clients import Admin, SimpleConsumer
from odradek.metadata.store import Reader
from odradek.model import AuthenticationError, ConfigurationError, OdradekError
from odradek.page.settings import PageSettings
from odradek.runtime import Runtime

C = TypeVar("C", Admin, SimpleConsumer)
_FETCH_BYTES: Final = 4 << 20
"""Limit of the records of one fetch in memory, which end with the batch that exceeds it."""
_IDLE_S: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 1000
"""Limit of sessions; a login beyond it ends the one that was idle for longest."""
_MOST_READING: Final = 2
"""Limit of the chunks of messages that a session reads at the same time; its other searches wait in turn."""
_MOST_OF_USER: Final = 20
"""Limit of sessions of one user; a login beyond it ends that user's own that was idle for longest."""
_CHECK_S: Final = 60.0
"""The time after which a session's credentials are checked again: the user may have been deleted."""


class Session:
    """A user of the page: its admin client, the token in its forms, and whether it may change the cluster."""

    def __init__(self, key: str, csrf_token: str, client: Mapping[str, Any], *, user: str, may_change: bool) -> None:
        self.key = key
        self.csrf_token = csrf_token
        self.client = client
        self.user = user
        self.may_change = may_change
        self.used_s = self.checked_s = 0.0
        self.reading = asyncio.Semaphore(_MOST_READING)
        self._starting: dict[type[Admin | SimpleConsumer], asyncio.Task[Any]] = {}
        self._is_closed = False

    async def admin(self) -> Admin:
        """Return the session's connected admin client. Raises `UnavailableError` if no broker answers in time."""
        return await self._started(Admin)

    async def consumer(self) -> SimpleConsumer:
        """Return the session's connected consumer. Raises `UnavailableError` if no broker answers in time."""
        return await self._started(SimpleConsumer, fetch_max_bytes=_FETCH_BYTES)

    async def close(self) -> None:
        self._is_closed = True
        starting, self._starting = list(self._starting.values()), {}
        for task in starting:
            task.cancel()
        for client in await asyncio.gather(*starting, return_exceptions=True):
            if not isinstance(client, BaseException):
                await client.close()

    async def _started(self, kind: type[C], **settings: Any) -> C:
        if self._is_closed:
            raise ConfigurationError("this session has ended: log in again")
        starting = self._starting.get(kind)
        if starting is None or (starting.done() and starting.exception() is not None):
            # All requests wait for the same start, and a later request starts again if it fails.
            starting = self._starting[kind] = asyncio.create_task(kind(**self.client, **settings).start())
        client: C = await asyncio.shield(starting)
        return client


class Sessions:
    """The sessions of one page; keys and tokens are random."""

    def __init__(self, settings: PageSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._by_key: dict[str, Session] = {}
        self._login_token = self._random()
        self._tree: Reader | None = None
        self._shared = self._new("shared", settings.client, user="")

    def tree(self) -> Reader | None:
        """Return the metadata tree, which the first call opens; None if the page has none.

        Raises `ConfigurationError` or `StorageError` if it cannot be opened.
        """
        if self._tree is None and self._settings.open_tree is not None:
            self._tree = self._settings.open_tree()
        return self._tree

    @property
    def login_token(self) -> str:
        return self._login_token

    def find(self, cookies: str, port: str) -> Session | None:
        """Return the session that a Cookie header names, or None; a page without logins has one shared session."""
        if not self._settings.requires_login:
            return self._shared
        try:
            given = SimpleCookie(cookies).get(cookie_name("session", port))
        except CookieError:
            return None
        found = None if given is None else self._by_key.get(given.value)
        now_s = self._runtime.clock.monotonic()
        if found is None or now_s - found.used_s > _IDLE_S:
            return None
        found.used_s = now_s
        return found

    async def is_valid(self, session: Session) -> bool:
        """Return whether brokers accept the session's credentials still, as they did a minute ago; end it if not."""
        now_s = self._runtime.clock.monotonic()
        if session is self._shared or now_s - session.checked_s < _CHECK_S:
            return True
        session.checked_s = now_s
        try:
            async with Admin(**session.client):
                return True
        except AuthenticationError:
            await self.remove(session)
            return False
        except OdradekError:  # no broker answers: the pages say so
            return True

    async def add(self, client: Mapping[str, Any], user: str) -> Session:
        """Add the session of a user who has logged in, with a client of these settings."""
        await self._expire(user)
        session = self._new(self._random(), client, user=user)
        self._by_key[session.key] = session
        return session

    async def remove(self, session: Session) -> None:
        self._by_key.pop(session.key, None)
        await session.close()

    async def close(self) -> None:
        """End all sessions, and close the metadata tree."""
        for session in [self._shared, *self._by_key.values()]:
            await self.remove(session)
        if self._tree is not None:
            await self._tree.close()

    async def _expire(self, user: str) -> None:
        """End the sessions that are idle for too long, and the longest idle one if there are too many, or of `user`."""
        now_s = self._runtime.clock.monotonic()
        by_age = sorted(self._by_key.values(), key=lambda each: each.used_s)
        own = [each for each in by_age if each.user == user]
        surplus = own[: max(0, len(own) - _MOST_OF_USER + 1)] or by_age[: max(0, len(by_age) - _MOST_SESSIONS + 1)]
        for session in by_age:
            if session in surplus or now_s - session.used_s > _IDLE_S:
                await self.remove(session)

    def _new(self, key: str, client: Mapping[str, Any], *, user: str) -> Session:
        session = Session(key, self._random(), client, user=user, may_change=self._settings.may_change)
        session.used_s = session.checked_s = self._runtime.clock.monotonic()
        return session

    def _random(self) -> str:
        return self._runtime.entropy.randbytes(24).hex()


def cookie_name(name: str, port: str) -> str:
    """Return a cookie's name, which has the port because browsers send cookies to all ports of a host."""
    return f"odradek-{name}-{port}"


def same_text(first: str, second: str) -> bool:
    """Compare two secrets in a time that does not depend on them."""
    return hmac.compare_digest(first.encode(), second.encode())
