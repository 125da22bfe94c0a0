"""A SQLite tree as somebody sees who only looks: no session, and nothing is written, not even when it is opened.

Changes are looked for every `POLL_INTERVAL_S`; looking costs about 10 µs while there are none. What another process
holds for a moment is waited for, without blocking the loop.
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
_SILENT_WAIT_S: Final = 1.0
_log = logging.getLogger("odradek.stores")


class SqliteReader:
    """What can be read in `tree`, which is closed with it. See `Reader`."""

    def __init__(self, tree: SqliteTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self._watches = Watches()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._trouble = ""
        """Why the last look failed: said once, not at every look."""
        self._busy_since: float | None = None
        self._seen_version = tree.data_version()
        self._seen_change = tree.last_change()

    async def get(self, path: str) -> Node | None:
        """See `Reader`."""
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """See `Reader`."""
        wanted = [check_path(path) for path in paths]
        return await self._attempt(lambda: self._tree.nodes(wanted))

    async def children(self, path: str) -> list[str]:
        """See `Reader`."""
        check_path(path)
        return await self._attempt(lambda: self._tree.names(path))

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Reader`."""
        self._start_polling()
        return self._watches.add_data(check_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Reader`."""
        self._start_polling()
        return self._watches.add_children(check_path(path), callback)

    async def close(self) -> None:
        """See `Reader`."""
        if not self._closed:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._watches.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._tree.close()

    async def _attempt(self, work: Callable[[], T]) -> T:
        """Do `work` when no other process is in the way. Raises `UnavailableError` if one stays there."""
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
        """The outermost edge of a timer: an error is logged, and the next poll tries again."""
        self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self._poll)
        try:
            self._look()
        except (sqlite3.Error, OSError) as error:
            self._complain(error)
        else:
            self._busy_since = None
            if self._trouble:
                self._trouble = ""
                _log.info("the metadata database %s works again", self._tree.path)

    def _complain(self, error: Exception) -> None:
        """Say what is wrong, once; another process may be in the way for a moment."""
        now, trouble = self._clock.monotonic(), str(error)
        if is_busy(error):
            self._busy_since = now if self._busy_since is None else self._busy_since
            if now - self._busy_since < _SILENT_WAIT_S:
                return
            trouble = "another process holds it, and nothing can be written"
        if trouble != self._trouble:
            self._trouble = trouble
            _log.error("the metadata database %s fails: %s", self._tree.path, trouble)

    def _look(self) -> None:
        """What the timer does: look for changes."""
        self._has_changed()

    def _has_changed(self) -> bool:
        """Whether anybody has written since this was last asked; the watches are fired then."""
        version = self._tree.data_version()
        if version == self._seen_version:
            return False
        self._catch_up()
        self._seen_version = version
        return True

    def _catch_up(self) -> None:
        """Fire the watches of what changed, by this connection or another."""
        self._seen_change, changes = self._tree.changes_since(self._seen_change)
        if changes is None:
            self._watches.fire_all()
        else:
            self._watches.fire(changes)
