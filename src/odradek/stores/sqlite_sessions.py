"""Sessions of a SQLite tree, each a row and a locked file with a lease in the directory `PATH.sessions`.

    lock held, lease valid       alive
    lock held, lease expired     the process is stopped or its loop stuck: expired by another session
    lock free                    its process died: expired at once

A lease is the modification time of the locked file: its renewal needs no space, so that a full disk ends no session. To
expire a session, any process deletes its nodes and its row in one transaction; if the session's process continues, it
finds its row missing. A session takes its lock before it writes its row. The next session that begins removes lock
files without a row; a lock is valid only if its file still exists after locking. Leases use the machine's monotonic
clock; after a reboot old leases are meaningless, but old locks are free.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.metadata.store import Delete, Operation, Result
from odradek.runtime import DiskLock, Runtime
from odradek.stores.semantics import apply
from odradek.stores.sqlite_tree import Session, SqliteTree

_RENEWALS_PER_LEASE: Final = 3
_MAX_LOCK_ATTEMPTS: Final = 100
"""The limit of attempts to lock a new file, which other processes may remove first."""
_log = logging.getLogger("odradek.stores")


class SessionGoneError(Exception):
    """Another process has expired this session."""


class SqliteSession:
    """The session of this process, which expires dead sessions of others.

    Any thread may call `renew`, with a connection of its own. Methods raise `sqlite3.Error` and `OSError`.
    No process expires the session before `lease_ms` (monotonic clock), unless its lock is free.
    """

    def __init__(self, tree: SqliteTree, runtime: Runtime, *, timeout_ms: int) -> None:
        self._tree = tree
        self._runtime = runtime
        self._timeout_ms = timeout_ms
        self._directory = f"{tree.path}.sessions"
        self._others: list[Session] = []
        self._renewing = threading.Lock()
        runtime.disk.make_directories(self._directory)
        self._remove_stale_locks()
        self.session_id, self._lock, self.lease_ms = self._begin()

    def commit(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        """Run operations in a transaction. Raises `StoreError`, or `SessionGoneError` if `session_id` has expired."""

        def work() -> list[Result]:
            if session_id != self.session_id or self._tree.session(session_id) is None:
                raise SessionGoneError
            return self._apply(operations, session_id)

        return self._tree.write(work)

    def begin_new(self) -> bool:
        """Begin a new session if this one has expired; return whether it has."""
        if self._tree.session(self.session_id) is not None:
            return False
        session_id, lock = self.session_id, self._lock
        begun = self._begin()
        with self._renewing:
            self.session_id, self._lock, self.lease_ms = begun
        self._release(session_id, lock)
        return True

    def renew_if_due(self) -> None:
        """Renew the lease once a third of it has passed.

        Raises `SessionGoneError` if the session was expired, or has lost its locked file.
        """
        if self._now_ms() < self.lease_ms - self._timeout_ms + self._timeout_ms // _RENEWALS_PER_LEASE:
            return
        try:
            self.renew(self._tree)
        except FileNotFoundError:
            self._tree.check_identity()
            self.end()
            raise SessionGoneError from None

    def renew(self, tree: SqliteTree) -> None:
        """Renew the lease in a transaction of `tree`. Raises `SessionGoneError` if the session was expired."""
        session_id = self.session_id

        def work() -> int:
            if tree.session(session_id) is None:
                raise SessionGoneError
            return self._write_lease(session_id)

        lease_ms = tree.write(work)  # a transaction without changes, against a concurrent `_delete`
        with self._renewing:
            if session_id == self.session_id:
                self.lease_ms = lease_ms

    def refresh(self) -> None:
        """Read the rows of the other sessions. Raises `SessionGoneError` if this one has expired."""
        sessions = self._tree.sessions()
        self._others = [each for each in sessions if each.session_id != self.session_id]
        if len(self._others) == len(sessions):
            raise SessionGoneError

    def expire_dead(self) -> bool:
        """Expire the sessions of dead or late processes; return whether nodes may have changed."""
        expired = [other for other in self._others if self._expire_if_dead(other)]
        if expired:
            self.refresh()
        return bool(expired)

    def end(self) -> None:
        self._tree.write(lambda: self._delete(self.session_id))

    def release(self) -> None:
        """Release the lock, so that other processes expire the session if `end` failed."""
        self._release(self.session_id, self._lock)

    def _begin(self) -> tuple[int, DiskLock, int]:
        """Expire dead sessions, then begin a new one; return its number, lock and lease end (ms)."""
        self._others = self._tree.sessions()
        for other in self._others:
            self._expire_if_dead(other)
        session_id, lock = self._take_lock()
        try:
            lease_ms = self._tree.write(lambda: self._write_row(session_id))
            self._others = [each for each in self._tree.sessions() if each.session_id != session_id]
        except sqlite3.Error:
            self._release(session_id, lock)
            raise
        return session_id, lock, lease_ms

    def _take_lock(self) -> tuple[int, DiskLock]:
        """Return a new session's number and lock. Try another number if the file is removed before it is locked."""
        for _ in range(_MAX_LOCK_ATTEMPTS):
            session_id = self._runtime.entropy.getrandbits(62) + 1
            with suppress(BlockingIOError):
                return session_id, self._runtime.disk.lock(self._lock_path(session_id), _holder())
        raise BlockingIOError(f"other processes removed each new lock file in {self._directory}")

    def _write_row(self, session_id: int) -> int:
        self._tree.reserve_space()
        self._tree.save_session(Session(session_id, _holder()))
        return self._write_lease(session_id)

    def _write_lease(self, session_id: int) -> int:
        until_s = self._runtime.clock.monotonic() + self._timeout_ms / 1000
        self._runtime.disk.set_modified_at(self._lock_path(session_id), until_s)
        return self._lease_ms(session_id)

    def _lease_ms(self, session_id: int) -> int:
        return int(self._runtime.disk.modified_at(self._lock_path(session_id)) * 1000)

    def _is_late(self, session_id: int) -> bool:
        with suppress(FileNotFoundError):  # its process is releasing it
            return self._lease_ms(session_id) < self._now_ms()
        return False

    def _expire_if_dead(self, other: Session) -> bool:
        try:
            lock = self._runtime.disk.lock(self._lock_path(other.session_id), _holder())
        except BlockingIOError:
            if not self._is_late(other.session_id):
                return False
            return self._tree.write(lambda: self._delete(other.session_id, late_only=True))
        try:
            expired = self._tree.write(lambda: self._delete(other.session_id))
        except sqlite3.Error:
            lock.release()
            raise
        self._release(other.session_id, lock)
        _log.info("expired the session of %s with %s", other.holder, self._tree.path)
        return expired

    def _delete(self, session_id: int, *, late_only: bool = False) -> bool:
        """Delete a session and its nodes; with `late_only` only if its lease has expired. Needs a transaction."""
        if self._tree.session(session_id) is None or (late_only and not self._is_late(session_id)):
            return False
        self._apply([Delete(path=path) for path in self._tree.owned(session_id)], session_id)
        self._tree.remove_session(session_id)
        return True

    def _apply(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        number = self._tree.last_change() + 1
        results, changes = apply(self._tree, operations, session=session_id, transaction=number)
        self._tree.record_changes(changes)
        return results

    def _remove_stale_locks(self) -> None:
        """Remove free lock files without a row, left by processes that died before they wrote one."""
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
            _log.debug("the lock file %s was already removed", path)

    def _lock_path(self, session_id: int) -> str:
        return f"{self._directory}/{session_id:016x}"

    def _now_ms(self) -> int:
        return int(self._runtime.clock.monotonic() * 1000)


def _holder() -> str:
    return f"process {os.getpid()}"
