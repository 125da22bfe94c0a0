"""The tree in one SQLite file, shared by the processes of one machine.

Transactions run on the event loop, since they take about 0.1 ms. The file must be on a local disk: SQLite's write-ahead
log needs shared memory. `sqlite_reader` has what a session shares with those who only look.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from odradek.metadata.store import Operation, Result, SessionExpired, SingleOperations
from odradek.model import StorageError, UnavailableError
from odradek.runtime import Runtime
from odradek.stores.sqlite_reader import SqliteReader
from odradek.stores.sqlite_sessions import SessionGoneError, SqliteSession
from odradek.stores.sqlite_tree import SqliteTree

DEFAULT_SESSION_TIMEOUT_MS: Final = 18_000
_log = logging.getLogger("odradek.stores")


class SqliteStore(SingleOperations, SqliteReader):
    """One session with the tree in the file at `path`. Raises `StorageError` if the file cannot be used."""

    def __init__(self, path: str, runtime: Runtime, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self._lost: list[Callable[[], None]] = []
        try:
            runtime.disk.make_directories(os.path.dirname(path) or ".")
        except OSError as error:
            # "File exists" says too little of what is in the way.
            reason = f"{error.filename} is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise StorageError(f"can't create a directory for the metadata database {path}: {reason}") from None
        tree = SqliteTree(path)
        try:
            super().__init__(tree, runtime.clock)
            self._session = SqliteSession(tree, runtime, timeout_ms=session_timeout_ms)
            tree.stop_waiting()
        except (sqlite3.Error, OSError) as error:
            tree.close()
            raise StorageError(f"can't begin a session with the metadata database {path}: {error}") from None

    @property
    def session_id(self) -> int:
        """See `Store`."""
        return self._session.session_id

    @property
    def alive_until(self) -> float:
        """See `Store`: the lease as it was last written, by the clock that all processes of the machine share."""
        return self._session.lease_ms / 1000

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """See `Store`."""
        session_id = self.session_id
        try:
            results = await self._attempt(lambda: self._session.commit(operations, session_id))
        except SessionGoneError:
            await self._attempt(self._begin_again)
            raise SessionExpired from None
        await self._attempt(self._catch_up)
        return results

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """See `Store`."""
        self._start_polling()
        self._lost.append(callback)

    async def close(self) -> None:
        """See `Store`."""
        if self._closed:
            return
        self._watches.clear()
        self._lost.clear()
        try:
            await self._attempt(self._session.end)
        except (StorageError, UnavailableError) as error:
            _log.warning("the session with %s ends without saying so: %s", self._tree.path, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """See `Store`; other sessions bury this one."""
        if self._closed:
            return
        self._lost.clear()
        self._session.release()
        self._end()

    def _look(self) -> None:
        """Look for changes, for this session's death, and for others'."""
        self._tree.check_place()
        try:
            if self._has_changed():
                self._session.look()
            self._session.renew_if_due()
            if self._session.bury_dead():
                self._catch_up()
        except SessionGoneError:
            self._begin_again()

    def _begin_again(self) -> None:
        """After the session was lost: begin a new one, and tell everybody here."""
        if not self._session.begin_again():
            return
        _log.warning("the session with %s was lost; a new one has begun", self._tree.path)
        self._watches.fire_all()
        for callback in self._lost:
            asyncio.get_running_loop().call_soon(callback)
