"""The tree in one SQLite file, shared by the processes of one machine.

Changes are looked for every `POLL_INTERVAL_S`; looking costs about 10 µs while there are none. Transactions run on the
event loop, since they take about 0.1 ms; waiting for another process's transaction does not block the loop. The file
must be on a local disk: SQLite's write-ahead log needs shared memory.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from odradek.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    Result,
    SessionExpired,
    SetData,
    Watch,
)
from odradek.model import StorageError, UnavailableError
from odradek.runtime import Runtime
from odradek.stores.semantics import check_path
from odradek.stores.sqlite_sessions import SessionGoneError, SqliteSession
from odradek.stores.sqlite_tree import SqliteTree, is_busy
from odradek.stores.watches import Watches

T = TypeVar("T")
POLL_INTERVAL_S: Final = 0.02
DEFAULT_SESSION_TIMEOUT_MS: Final = 18_000
_BUSY_TIMEOUT_S: Final = 10.0
_log = logging.getLogger("odradek.stores")


class SqliteStore:
    """One session with the tree in the file at `path`. Raises `StorageError` if the file cannot be used."""

    def __init__(self, path: str, runtime: Runtime, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self._clock = runtime.clock
        self._watches = Watches()
        self._lost: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        try:
            runtime.disk.make_directories(os.path.dirname(path) or ".")
        except OSError as error:
            raise StorageError(f"can't create a directory for the metadata database {path}: {error.strerror}") from None
        self._tree = SqliteTree(path)
        try:
            self._seen_version = self._tree.data_version()
            self._seen_change = self._tree.last_change()
            self._session = SqliteSession(self._tree, runtime, timeout_ms=session_timeout_ms)
            self._tree.stop_waiting()
        except (sqlite3.Error, OSError) as error:
            self._tree.close()
            raise StorageError(f"can't begin a session with the metadata database {path}: {error}") from None

    @property
    def session_id(self) -> int:
        """See `Store`."""
        return self._session.session_id

    async def get(self, path: str) -> Node | None:
        """See `Store`."""
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """See `Store`."""
        wanted = [check_path(path) for path in paths]
        return await self._attempt(lambda: self._tree.nodes(wanted))

    async def children(self, path: str) -> list[str]:
        """See `Store`."""
        check_path(path)
        return await self._attempt(lambda: self._tree.names(path))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """See `Store`."""
        results = await self.multi([Create(path=path, data=data, ephemeral=ephemeral, sequence=sequence)])
        return str(results[0])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See `Store`."""
        results = await self.multi([SetData(path=path, data=data, version=version)])
        return int(results[0] or 0)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Store`."""
        await self.multi([Delete(path=path, version=version)])

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

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        self._start_polling()
        return self._watches.add_data(check_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        self._start_polling()
        return self._watches.add_children(check_path(path), callback)

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
        self._closed = True
        self._watches.clear()
        self._lost.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._session.release()
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
            try:
                self._look()
            except SessionGoneError:
                self._begin_again()
        except (sqlite3.Error, OSError) as error:
            if not is_busy(error):
                _log.error("the metadata database %s failed: %s", self._tree.path, error)

    def _look(self) -> None:
        """Look for changes, for this session's death, and for others'."""
        version = self._tree.data_version()
        if version != self._seen_version:
            self._catch_up()
            self._session.look()
            self._seen_version = version
        self._session.renew_if_due()
        if self._session.bury_dead():
            self._catch_up()

    def _catch_up(self) -> None:
        """Fire the watches of what changed, by this session or another."""
        self._seen_change, changes = self._tree.changes_since(self._seen_change)
        if changes is None:
            self._watches.fire_all()
        else:
            self._watches.fire(changes)

    def _begin_again(self) -> None:
        """After the session was lost: begin a new one, and tell everybody here."""
        if not self._session.begin_again():
            return
        _log.warning("the session with %s was lost; a new one has begun", self._tree.path)
        self._watches.fire_all()
        for callback in self._lost:
            asyncio.get_running_loop().call_soon(callback)
