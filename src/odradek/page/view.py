"""A view's declaration: pages, which show what a function returns, and actions, which forms post to."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from odradek.clients import Admin
from odradek.metadata.store import Reader
from odradek.model import ConfigurationError
from odradek.page.playing import Plays
from odradek.page.readings import Readings
from odradek.page.sessions import Session
from odradek.page.settings import PageSettings
from odradek.runtime import Runtime

T = TypeVar("T")


class PageRequest(Struct, frozen=True, kw_only=True):
    """A request for a page or an action: who asks, the address's parts, and the fields of a posted form."""

    session: Session
    settings: PageSettings
    runtime: Runtime
    tree: Callable[[], Reader | None]
    readings: Readings
    plays: Plays
    address: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    async def admin(self) -> Admin:
        """Return the admin client of the session's user, connected. Raises `UnavailableError`."""
        return await self.session.admin()

    async def reading(self, key: Hashable, read: Callable[[Admin], Awaitable[T]], interval_s: float | None = None) -> T:
        """Return what `read` returns; the session shares it by key for `interval_s`, by default the page's."""
        value: T = await self.readings.get((self.session.key, key), *self._read(read, interval_s))
        return value

    async def known(
        self, key: Hashable, read: Callable[[Admin], Awaitable[T]], interval_s: float | None = None
    ) -> T | None:
        """Return what `reading` returns; if it takes long, as while a broker hangs, the last value; otherwise None."""
        value: T | None = await self.readings.known((self.session.key, key), *self._read(read, interval_s))
        return value

    async def latest(self, key: Hashable, read: Callable[[Admin], Awaitable[T]]) -> T:
        """Return what `known` returns, or `reading` if it is None."""
        value = await self.known(key, read)
        return await self.reading(key, read) if value is None else value

    def silent_s(self, key: Hashable) -> float:
        """Return for how long a requested value of `key` has been missing."""
        return self.readings.silent_s((self.session.key, key))

    def _read(
        self, read: Callable[[Admin], Awaitable[T]], interval_s: float | None
    ) -> tuple[Callable[[], Awaitable[T]], float]:
        async def made() -> T:
            return await read(await self.admin())

        return made, self.settings.interval_s if interval_s is None else interval_s

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a number of the form or the query. Raises `ConfigurationError` for another text."""
        text = (self.form.get(name) or self.query.get(name) or "").strip()
        if not text:
            return default
        number = int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20 else None
        if number is None or not least <= number <= most:
            raise ConfigurationError(f"{name} is {text[:40]!r}, not a number from {least} to {most}")
        return number


class Done(Struct, frozen=True, kw_only=True):
    """The result of an action: the address that the browser opens next, and a sentence that is shown there."""

    address: str
    message: str = ""


class Page(Struct, frozen=True, kw_only=True):
    """An address whose template shows what `data` returns, as `data`; a Response is sent as it is.

    The blocks in `live` are sent again while the page is open: the template has each in an element whose id is the
    block's name. `data` is called again every `interval_s`, by default the page's; a page with `updates` has that
    iterator's values instead; the iterator is closed when the last viewer has left. `operator` pages need that role.
    """

    path: str
    template: str
    data: Callable[[PageRequest], Awaitable[Any]]
    live: tuple[str, ...] = ()
    interval_s: float | None = None
    updates: Callable[[PageRequest], AsyncIterator[Any]] | None = None
    operator: bool = False


class Action(Struct, frozen=True, kw_only=True):
    """An address that a form posts to. An error is shown above the form: in the page of the same path, if there is one.

    Viewers may not act, except where `operator` is False.
    """

    path: str
    act: Callable[[PageRequest], Awaitable[Done]]
    operator: bool = True


class View(Struct, frozen=True, kw_only=True):
    """A part of the page: its pages and actions, and its entry in the navigation. A `title` of "" has none."""

    title: str
    path: str
    pages: tuple[Page, ...]
    actions: tuple[Action, ...] = ()
