"""Who is alive: sessions of a SQLite tree, each a row with a lease and a file lock in the directory `PATH.sessions`.

    lock held, lease running     alive
    lock held, lease run out     stopped, or its loop is stuck: buried; it notices when it goes on
    lock free                    its process died: buried at once

Burying is deleting the session's nodes and its row in one transaction; any process may do it. A session takes its lock
before it writes its row, so whoever sees a row finds its lock held. Files that no row names are swept away by whoever
begins; a lock counts only if its file is still there when it is taken. Leases count the machine's monotonic clock,
which all its processes share and nobody sets; after a reboot old leases mean nothing, but old locks are free.
"""

import logging
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.metadata.store import Delete, Operation, Result
from odradek.runtime import DiskLock, Runtime
from odradek.stores.semantics import apply
from odradek.stores.sqlite_tree import Session, SqliteTree

_RENEWALS_PER_LEASE: Final = 3
_MOST_SWEEPERS: Final = 100
"""How many processes may begin in the very moment between another's making a lock file and locking it."""
_log = logging.getLogger("odradek.stores")


class SessionGoneError(Exception):
    """Somebody buried this session."""


class SqliteSession:
    """The session of this process, and what it knows of the others. Methods raise `sqlite3.Error` and `OSError`.

    `lease_ms` is until when nobody buries it but for a free lock.
    """

    def __init__(self, tree: SqliteTree, runtime: Runtime, *, timeout_ms: int) -> None:
        self._tree = tree
        self._runtime = runtime
        self._timeout_ms = timeout_ms
        self._directory = f"{tree.path}.sessions"
        self._others: list[Session] = []
        runtime.disk.make_directories(self._directory)
        self._sweep()
        self.session_id, self._lock, self.lease_ms = self._begin()

    def commit(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        """Do operations in one transaction. Raises `StoreError`, or `SessionGoneError` if `session_id` is dead."""

        def work() -> list[Result]:
            if session_id != self.session_id or self._tree.session(session_id) is None:
                raise SessionGoneError
            return self._apply(operations, session_id)

        return self._tree.write(work)

    def begin_again(self) -> bool:
        """After the session was buried: begin a new one. False if it is alive after all."""
        if self._tree.session(self.session_id) is not None:
            return False
        session_id, lock = self.session_id, self._lock
        self.session_id, self._lock, self.lease_ms = self._begin()
        self._release(session_id, lock)
        return True

    def renew_if_due(self) -> None:
        """Prolong the lease after a third of it. Raises `SessionGoneError`."""
        if self._now_ms() < self.lease_ms - self._timeout_ms + self._timeout_ms // _RENEWALS_PER_LEASE:
            return

        def work() -> int:
            if self._tree.session(self.session_id) is None:
                raise SessionGoneError
            return self._write_row(self.session_id)

        self.lease_ms = self._tree.write_unsynced(work)

    def look(self) -> None:
        """Read who else has a session. Raises `SessionGoneError` if this one has none."""
        sessions = self._tree.sessions()
        self._others = [each for each in sessions if each.session_id != self.session_id]
        if len(self._others) == len(sessions):
            raise SessionGoneError

    def bury_dead(self) -> bool:
        """Bury whoever died or is late. True if there was one: nodes may have changed."""
        buried = [other for other in self._others if self._bury_if_dead(other)]
        if buried:
            self.look()
        return bool(buried)

    def end(self) -> None:
        """Delete this session and its nodes."""
        self._tree.write(lambda: self._delete(self.session_id))

    def release(self) -> None:
        """Let go of the lock, so that others bury what `end` did not reach."""
        self._release(self.session_id, self._lock)

    def _begin(self) -> tuple[int, DiskLock, int]:
        """A new session: its number, its lock, and its lease. Those who died before are buried first."""
        self._others = self._tree.sessions()
        for other in self._others:
            self._bury_if_dead(other)
        session_id, lock = self._take_lock()
        try:
            lease_ms = self._tree.write(lambda: self._write_row(session_id))
            self._others = [each for each in self._tree.sessions() if each.session_id != session_id]
        except sqlite3.Error:
            self._release(session_id, lock)
            raise
        return session_id, lock, lease_ms

    def _take_lock(self) -> tuple[int, DiskLock]:
        """A number and its lock; another number if somebody sweeps the new file away before it is locked."""
        for _ in range(_MOST_SWEEPERS):
            session_id = self._runtime.entropy.getrandbits(62) + 1
            with suppress(BlockingIOError):
                return session_id, self._runtime.disk.lock(self._lock_path(session_id), _holder())
        raise BlockingIOError(f"other processes take every lock in {self._directory}")

    def _write_row(self, session_id: int) -> int:
        lease_ms = self._now_ms() + self._timeout_ms
        self._tree.save_session(Session(session_id, lease_ms, _holder()))
        return lease_ms

    def _bury_if_dead(self, other: Session) -> bool:
        try:
            lock = self._runtime.disk.lock(self._lock_path(other.session_id), _holder())
        except BlockingIOError:
            if other.lease_ms >= self._now_ms():
                return False
            return self._tree.write(lambda: self._delete(other.session_id, late_only=True))
        try:
            buried = self._tree.write(lambda: self._delete(other.session_id))
        except sqlite3.Error:
            lock.release()
            raise
        self._release(other.session_id, lock)
        _log.info("buried the session of %s with %s", other.holder, self._tree.path)
        return buried

    def _delete(self, session_id: int, *, late_only: bool = False) -> bool:
        """The inside of a transaction: delete a session and its nodes, unless its lease was renewed meanwhile."""
        row = self._tree.session(session_id)
        if row is None or (late_only and row.lease_ms >= self._now_ms()):
            return False
        self._apply([Delete(path=path) for path in self._tree.owned(session_id)], session_id)
        self._tree.remove_session(session_id)
        return True

    def _apply(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        number = self._tree.last_change() + 1
        results, changes = apply(self._tree, operations, session=session_id, transaction=number)
        self._tree.record_changes(changes)
        return results

    def _sweep(self) -> None:
        """Remove lock files that no row names: their processes died between the two."""
        known = {f"{session.session_id:016x}" for session in self._tree.sessions()}
        for name in self._runtime.disk.list(self._directory):
            if name not in known and len(name) == 16:
                self._remove_if_free(f"{self._directory}/{name}")

    def _remove_if_free(self, path: str) -> None:
        try:
            lock = self._runtime.disk.lock(path, _holder())
        except BlockingIOError:
            return
        self._remove(path)
        lock.release()

    def _release(self, session_id: int, lock: DiskLock) -> None:
        self._remove(self._lock_path(session_id))
        lock.release()

    def _remove(self, path: str) -> None:
        try:
            self._runtime.disk.remove(path)
        except FileNotFoundError:
            _log.debug("the lock %s is gone already", path)

    def _lock_path(self, session_id: int) -> str:
        return f"{self._directory}/{session_id:016x}"

    def _now_ms(self) -> int:
        return int(self._runtime.clock.monotonic() * 1000)


def _holder() -> str:
    return f"process {os.getpid()}"
