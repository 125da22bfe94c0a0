"""Read access to a SQLite tree without a session. Nothing is written, not even when the tree is opened.

Changes are polled every `POLL_INTERVAL_S`, which takes about 10 µs without changes. Operations wait for the locks of
other processes without blocking the loop.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from odradek.metadata.store import Node, Watch
from odradek.model import StorageError, UnavailableError
from odradek.runtime import Clock
from odradek.stores.semantics import check_path
from odradek.stores.sqlite_tree import SqliteTree, is_busy
from odradek.stores.watches import Watches

T = TypeVar("T")
POLL_INTERVAL_S: Final = 0.02
_BUSY_TIMEOUT_S: Final = 10.0
_LOG_BUSY_AFTER_S: Final = 1.0
_log = logging.getLogger("odradek.stores")


class SqliteReader:
    """Implements `Reader` for `tree`; `close` also closes the tree."""

    def __init__(self, tree: SqliteTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self._watches = Watches()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._logged_error = ""
        """The error of the last poll, so that it is logged once."""
        self._busy_since: float | None = None
        self._seen_version = tree.data_version()
        self._seen_change = tree.last_change()

    async def get(self, path: str) -> Node | None:
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = [check_path(path) for path in paths]
        return await self._attempt(lambda: self._tree.nodes(wanted))

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._attempt(lambda: self._tree.names(path))

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        self._start_polling()
        return self._watches.add_data(check_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        self._start_polling()
        return self._watches.add_children(check_path(path), callback)

    async def close(self) -> None:
        if not self._closed:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._watches.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._tree.close()

    async def _attempt(self, work: Callable[[], T]) -> T:
        """Run `work`, with retries while another process locks the database.

        Raises `UnavailableError` after `_BUSY_TIMEOUT_S`, `StorageError` for other database errors or once closed.
        """
        deadline = self._clock.monotonic() + _BUSY_TIMEOUT_S
        delay_s = 0.001
        while True:
            if self._closed:
                raise StorageError("the metadata store is closed")
            self._start_polling()
            try:
                return work()
            except (sqlite3.Error, OSError) as error:
                if not is_busy(error):
                    raise StorageError(f"the metadata database {self._tree.path} failed: {error}") from error
                if self._clock.monotonic() > deadline:
                    message = f"another process holds the metadata database {self._tree.path}"
                    raise UnavailableError(f"{message} for {_BUSY_TIMEOUT_S:.0f} s") from None
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, POLL_INTERVAL_S)

    def _start_polling(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self._poll)

    def _poll(self) -> None:
        """Poll for changes and schedule the next poll; log errors."""
        self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self._poll)
        try:
            self._poll_once()
        except (sqlite3.Error, OSError) as error:
            self._log_error(error)
        else:
            self._busy_since = None
            if self._logged_error:
                self._logged_error = ""
                _log.info("the metadata database %s works again", self._tree.path)

    def _log_error(self, error: Exception) -> None:
        """Log an error once, a busy database only after `_LOG_BUSY_AFTER_S`."""
        now, text = self._clock.monotonic(), str(error)
        if is_busy(error):
            self._busy_since = now if self._busy_since is None else self._busy_since
            if now - self._busy_since < _LOG_BUSY_AFTER_S:
                return
            text = "another process holds it, and nothing can be written"
        if text != self._logged_error:
            self._logged_error = text
            _log.error("the metadata database %s fails: %s", self._tree.path, text)

    def _poll_once(self) -> None:
        self._has_changed()

    def _has_changed(self) -> bool:
        """Return whether another connection has committed since the last call; if so, fire the watches."""
        version = self._tree.data_version()
        if version == self._seen_version:
            return False
        self._fire_changes()
        self._seen_version = version
        return True

    def _fire_changes(self) -> None:
        """Fire the watches of all changes since the last call, by any connection."""
        self._seen_change, changes = self._tree.changes_since(self._seen_change)
        if changes is None:
            self._watches.fire_all()
        else:
            self._watches.fire(changes)
