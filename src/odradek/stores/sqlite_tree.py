"""The SQLite file of a tree: its tables and transactions, without sessions, watches or waiting.

    nodes     path (key), parent, data, version, owner (session or 0), created (transaction), next_sequence
    sessions  id, lease_ms (unused: see `sqlite_sessions`), holder (a note for people)
    changes   number (rises by 1, never used twice), path, existence; only about the newest CHANGES_KEPT

A file is a tree if its `application_id` is `APPLICATION_ID`; `user_version` is the version of these tables. Every
commit is synced, so that it survives a power failure. The write-ahead log has `_RESERVED_BYTES` in advance, so that
changes that free a full disk, such as the deletion of a topic, are possible on it.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

from odradek.metadata.paths import name_of, parent
from odradek.metadata.store import Node, NoNode
from odradek.model import StorageError
from odradek.stores.semantics import PERSISTENT, ROOT, Change, Record

T = TypeVar("T")
APPLICATION_ID: Final = 0x4F445244
SCHEMA_VERSION: Final = 1
CHANGES_KEPT: Final = 10_000
"""A session that has missed more changes fires all of its watches."""
_PRUNE_EVERY: Final = 1_000
_RESERVED_BYTES: Final = 8 << 20
"""Twice the size at which SQLite copies the log to the database, which may fail for want of space for new pages."""
_OPENING_TIMEOUT_S: Final = 5.0
_OPENING_PAUSE_S: Final = 0.01

_SCHEMA: Final = (
    """CREATE TABLE nodes (
        path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
        owner INTEGER NOT NULL, created INTEGER NOT NULL, next_sequence INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX nodes_by_parent ON nodes (parent, path)",
    "CREATE INDEX nodes_by_owner ON nodes (owner) WHERE owner <> 0",
    "CREATE TABLE sessions (id INTEGER PRIMARY KEY, lease_ms INTEGER NOT NULL, holder TEXT NOT NULL)",
    "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, existence INTEGER NOT NULL)",
    f"INSERT INTO nodes VALUES ('{ROOT}', '', x'', 0, {PERSISTENT}, 0, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class Session(NamedTuple):
    """A session's row: its number and its process."""

    session_id: int
    holder: str


def is_busy(error: Exception) -> bool:
    """Return whether `error` means that another process holds a lock of the database."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _open_error(path: str, error: sqlite3.Error, *, flags: int) -> str:
    """Return why a database cannot be opened; the system's error says more than SQLite's."""
    folder = os.path.dirname(path) or "."
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"this user may not write {folder}"
    except OSError as refused:
        return refused.strerror or str(refused)
    return str(error)


class SqliteTree:
    """One connection to the file. Methods raise `sqlite3.Error`; those that change rows must run inside `write`."""

    def __init__(self, path: str, *, reads_only: bool = False, reads_once: bool = False) -> None:
        """Open or create the tree; with `reads_only` it must exist, and `write` fails. Raises `StorageError`.

        With `reads_once`, later changes need not be seen, and no file is made beside a database that nobody uses.
        """
        self.path = path
        self._identity: tuple[int, int] | None = None
        if reads_only and not os.path.exists(path):
            raise StorageError(f"there is no metadata database {path}")
        if not reads_only and os.path.exists(path):
            for place in (path, os.path.dirname(path) or "."):  # SQLite creates two other files beside the database
                if not os.access(place, os.W_OK):
                    raise StorageError(f"can't open the metadata database {path}: this user may not write {place}")
        # The mode is a parameter of the URI, whose path is percent-encoded.
        address = f"file:{quote(path)}?mode={'ro' if reads_only else 'rwc'}"
        if reads_once and not os.path.exists(f"{path}-wal"):
            address += "&immutable=1"
        try:
            self._connection = sqlite3.connect(
                address,
                uri=True,
                timeout=_OPENING_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        except sqlite3.Error as error:
            reason = _open_error(path, error, flags=os.O_RDONLY if reads_only else os.O_RDWR)
            raise StorageError(f"can't open the metadata database {path}: {reason}") from None
        try:
            self._prepare(reads_only=reads_only)
        except sqlite3.Error as error:
            self._connection.close()
            raise StorageError(f"{path} is not a metadata database that can be used: {error}") from None
        except StorageError:
            self._connection.close()
            raise
        found = os.stat(path)
        self._identity = found.st_dev, found.st_ino

    def disable_busy_timeout(self) -> None:
        """Make operations fail at once on another process's lock; until then SQLite waits."""
        self._connection.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        self._connection.close()

    def check_identity(self) -> None:
        """Raise `FileNotFoundError` if the file was removed or replaced: other processes would miss writes."""
        if self._identity is None:
            return  # still opening
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise FileNotFoundError("the file was removed while it was in use") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise FileNotFoundError("the file was replaced by another one while it was in use")

    def write(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction; roll back if it raises. Raises `FileNotFoundError` if the file was replaced."""
        self.check_identity()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result

    def find(self, path: str) -> Record | None:
        found = self._connection.execute(
            "SELECT data, version, owner, created, next_sequence FROM nodes WHERE path = ?", (path,)
        ).fetchone()
        return None if found is None else Record._make(found)

    def save(self, path: str, record: Record) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?)",
            (path, "" if path == ROOT else parent(path), *record),
        )

    def remove(self, path: str) -> None:
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))

    def has_children(self, path: str) -> bool:
        return self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None

    def nodes(self, paths: Iterable[str]) -> list[Node | None]:
        """Implement `Store.get_many`, reading all nodes in one snapshot."""
        self._connection.execute("BEGIN")
        try:
            records = [self.find(path) for path in paths]
        finally:
            self._connection.execute("ROLLBACK")
        return [None if record is None else Node(*record[:4]) for record in records]

    def names(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted. Raises `NoNode`."""
        rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,)).fetchall()
        if not rows and self.find(path) is None:
            raise NoNode(path)
        return [name_of(row[0]) for row in rows]

    def owned(self, session: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        rows = self._connection.execute("SELECT path FROM nodes WHERE owner = ?", (session,)).fetchall()
        return [row[0] for row in rows]

    def last_change(self) -> int:
        """Return the number of the newest change."""
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        return 0 if row is None else int(row[0])

    def changes_since(self, number: int) -> tuple[int, list[Change] | None]:
        """Return the newest change's number, and the changes after `number` or, if some were pruned, None."""
        rows = self._connection.execute(
            "SELECT number, path, existence FROM changes WHERE number > ? ORDER BY number", (number,)
        ).fetchall()
        if not rows:
            return number, []
        changes = [Change(path, bool(existence)) for _, path, existence in rows]
        return rows[-1][0], changes if rows[0][0] == number + 1 else None

    def record_changes(self, changes: Sequence[Change]) -> None:
        """Record this transaction's changes for the other sessions, and prune old ones."""
        before = self.last_change()
        self._connection.executemany("INSERT INTO changes (path, existence) VALUES (?, ?)", changes)
        if before // _PRUNE_EVERY != (before + len(changes)) // _PRUNE_EVERY:
            oldest = before + len(changes) - CHANGES_KEPT
            self._connection.execute("DELETE FROM changes WHERE number <= ?", (oldest,))

    def data_version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def sessions(self) -> list[Session]:
        """Return all sessions, including dead ones."""
        rows = self._connection.execute("SELECT id, holder FROM sessions").fetchall()
        return [Session._make(row) for row in rows]

    def session(self, session_id: int) -> Session | None:
        row = self._connection.execute("SELECT id, holder FROM sessions WHERE id = ?", (session_id,)).fetchone()
        return None if row is None else Session._make(row)

    def save_session(self, session: Session) -> None:
        self._connection.execute("INSERT INTO sessions VALUES (?, 0, ?)", session)

    def reserve_space(self) -> None:
        """Extend the write-ahead log with zeros, which SQLite ignores; it overwrites the log from its start."""
        descriptor = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
        try:
            with suppress(AttributeError, OSError):  # macOS cannot, or the disk is full already
                os.posix_fallocate(descriptor, 0, _RESERVED_BYTES)
        finally:
            os.close(descriptor)

    def remove_session(self, session_id: int) -> None:
        """Delete a session's row; the caller deletes its nodes."""
        self._connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def _prepare(self, *, reads_only: bool) -> None:
        if self._pragma("application_id") != APPLICATION_ID:
            if reads_only:
                raise StorageError(f"{self.path} is not a metadata database")
            self._use_write_ahead_log()
            self.write(self._create_tables)
        if self._pragma("user_version") != SCHEMA_VERSION:
            raise StorageError(
                f"the metadata database {self.path} has format {self._pragma('user_version')}; "
                f"this release reads {SCHEMA_VERSION}"
            )
        self._connection.execute("PRAGMA synchronous = FULL")

    def _create_tables(self) -> None:
        """Create the tables, unless another process has. Raises `StorageError` for a foreign database."""
        if self._pragma("application_id") == APPLICATION_ID:
            return
        if self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise StorageError(f"{self.path} is a SQLite database of another application, not a metadata tree")
        for statement in _SCHEMA:
            self._connection.execute(statement)

    def _use_write_ahead_log(self) -> None:
        """Set WAL mode, with retries: SQLite ignores its busy time-out here if two processes create the file."""
        if self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            return
        for attempts_left in reversed(range(round(_OPENING_TIMEOUT_S / _OPENING_PAUSE_S))):
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not attempts_left:
                    raise
                time.sleep(_OPENING_PAUSE_S)
            else:
                return

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
