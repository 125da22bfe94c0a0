"""The tree in one SQLite file, shared by the processes of one machine.

Transactions run on the event loop, because they take about 0.1 ms. While the loop is busy, another thread renews the
session. The file must be on a local disk: SQLite's
write-ahead log needs shared memory.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from odradek.metadata.store import STUCK_SESSIONS, Operation, Result, SessionExpired, SingleOperations
from odradek.model import StorageError, UnavailableError
from odradek.runtime import Runtime
from odradek.stores.sqlite_reader import SqliteReader
from odradek.stores.sqlite_sessions import SessionGoneError, SqliteSession
from odradek.stores.sqlite_tree import SqliteTree

DEFAULT_SESSION_TIMEOUT_MS: Final = 18_000
_TICKS_PER_LEASE: Final = 8
_log = logging.getLogger("odradek.stores")


class SqliteStore(SingleOperations, SqliteReader):
    """One session with the tree in the file at `path`. Raises `StorageError` if the file cannot be used."""

    def __init__(self, path: str, runtime: Runtime, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self._lost: list[Callable[[], None]] = []
        self._runtime, self._timeout_s = runtime, session_timeout_ms / 1000
        self._turned_at = runtime.clock.monotonic()
        self._stop_renewals: Callable[[], None] | None = None
        self._renewing: SqliteTree | None = None
        """A connection for the other thread: the event loop may be in the middle of a transaction."""
        try:
            runtime.disk.make_directories(os.path.dirname(path) or ".")
        except OSError as error:
            # The system's "File exists" does not name what is in the way.
            reason = f"{error.filename} is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise StorageError(f"can't create a directory for the metadata database {path}: {reason}") from None
        tree = SqliteTree(path)
        try:
            super().__init__(tree, runtime.clock)
            self._session = SqliteSession(tree, runtime, timeout_ms=session_timeout_ms)
            tree.disable_busy_timeout()
        except (sqlite3.Error, OSError) as error:
            tree.close()
            raise StorageError(f"can't begin a session with the metadata database {path}: {error}") from None

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def alive_until(self) -> float:
        """The end of the last written lease, by the machine's monotonic clock."""
        return self._session.lease_ms / 1000

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        session_id = self.session_id
        try:
            results = await self._attempt(lambda: self._session.commit(operations, session_id))
        except SessionGoneError:
            await self._attempt(self._replace_session)
            raise SessionExpired from None
        await self._attempt(self._fire_changes)
        return results

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._start_polling()
        self._lost.append(callback)
        if self._stop_renewals is None:
            tree = self._renewing = SqliteTree(self._tree.path)
            renew = partial(self._renew_if_late, tree)
            self._stop_renewals = self._runtime.ticker.start(self._timeout_s / _TICKS_PER_LEASE, renew)

    def _renew_if_late(self, tree: SqliteTree) -> None:
        """Renew the lease for an event loop that is busy, but not stuck; called on another thread."""
        now = self._clock.monotonic()
        if self._closed or now - self._turned_at > STUCK_SESSIONS * self._timeout_s:
            return
        if self.alive_until - now < self._timeout_s / 2:
            with suppress(sqlite3.Error, OSError, SessionGoneError):  # the loop repeats it, and handles the error
                self._session.renew(tree)

    async def close(self) -> None:
        if self._closed:
            return
        self._watches.clear()
        self._lost.clear()
        try:
            await self._attempt(self._session.end)
        except (StorageError, UnavailableError) as error:
            _log.warning("Failed to end the session with %s, so it expires by its time-out: %s", self._tree.path, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without ending the session, which another session expires."""
        if self._closed:
            return
        self._lost.clear()
        if self._stop_renewals is not None and self._renewing is not None:
            self._stop_renewals()
            self._renewing.close()
        self._session.release()
        self._end()

    def _poll_once(self) -> None:
        """Fire watches of changes, renew the lease, expire dead sessions; begin a new session if this one expired."""
        self._turned_at = self._clock.monotonic()
        self._tree.check_identity()
        try:
            if self._has_changed():
                self._session.refresh()
            self._session.renew_if_due()
            if self._session.expire_dead():
                self._fire_changes()
        except SessionGoneError:
            self._replace_session()

    def _replace_session(self) -> None:
        """If the session has expired, begin a new one, fire all watches and call the `on_session_lost` callbacks."""
        if not self._session.begin_new():
            return
        _log.warning("the session with %s was lost; a new one has begun", self._tree.path)
        self._watches.fire_all()
        for callback in self._lost:
            asyncio.get_running_loop().call_soon(callback)
