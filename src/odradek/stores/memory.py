"""The tree in memory, for tests and the simulator; the sessions of a process share a `MemoryTree`.

A session ends when it is closed, when the test calls `MemoryTree.expire`, or by its time-out after
`MemoryStore.disconnect`. Every operation first yields to the event loop, as with a store in another process.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Final

from odradek.metadata.paths import name_of, parent
from odradek.metadata.store import (
    Delete,
    Node,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SingleOperations,
    Watch,
)
from odradek.model import StorageError, UnavailableError
from odradek.stores.semantics import PERSISTENT, ROOT, Change, Record, apply, check_path
from odradek.stores.watches import Watches

DEFAULT_SESSION_TIMEOUT_S: Final = 18.0


class MemoryTree:
    """The nodes and the open sessions. Belongs to one event loop."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._names: dict[str, set[str]] = {ROOT: set()}
        self._sessions: dict[int, MemoryStore] = {}
        self._undo: list[tuple[str, Record | None]] = []
        self._last_session = 0
        self._last_transaction = 0
        self.on_change: Callable[[str, Record | None, Record | None], None] | None = None
        """Called with each path that a transaction has changed, and the node before and after the transaction."""
        self._records[ROOT] = Record(data=b"", version=0, owner=PERSISTENT, created=0, next_sequence=0)

    def find(self, path: str) -> Record | None:
        return self._records.get(path)

    def save(self, path: str, record: Record) -> None:
        self._undo.append((path, self._records.get(path)))
        self._put(path, record)

    def remove(self, path: str) -> None:
        self._undo.append((path, self._records[path]))
        self._put(path, None)

    def has_children(self, path: str) -> bool:
        return bool(self._names[path])

    def names(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted. Raises `NoNode`."""
        if path not in self._names:
            raise NoNode(path)
        return sorted(self._names[path])

    def begin_session(self, store: "MemoryStore") -> int:
        self._last_session += 1
        self._sessions[self._last_session] = store
        return self._last_session

    def end_session(self, session: int) -> None:
        """End a session and delete its ephemeral nodes, without notifying its store."""
        if self._sessions.pop(session, None) is not None:
            owned = [path for path, record in self._records.items() if record.owner == session]
            self.commit([Delete(path=path) for path in owned], session)

    def expire(self, session: int) -> None:
        """Expire a session; its store begins a new one, now or with the next `reconnect`."""
        store = self._sessions.get(session)
        self.end_session(session)
        if store is not None:
            store.session_expired()

    def commit(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """Run all operations or none, and notify all sessions of the changes."""
        self._last_transaction += 1
        self._undo.clear()
        done = False
        try:
            results, changes = apply(self, operations, session=session, transaction=self._last_transaction)
            done = True
        finally:
            if not done:
                for path, record in reversed(self._undo):
                    self._put(path, record)
        if self.on_change is not None:
            for path, before in self._undo:
                self.on_change(path, before, self._records.get(path))
        for store in self._sessions.values():
            store.note(self._undo, changes)
        return results

    def _put(self, path: str, record: Record | None) -> None:
        if record is None:
            self._records.pop(path, None)
            self._names.pop(path, None)
            self._names[parent(path)].discard(name_of(path))
        else:
            self._records[path] = record
            self._names.setdefault(path, set())
            if path != ROOT:
                self._names[parent(path)].add(name_of(path))


class MemoryStore(SingleOperations):
    """One session with a `MemoryTree`, with a time-out of `session_timeout_s`."""

    def __init__(self, tree: MemoryTree, *, session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S) -> None:
        self.tree = tree
        self.watches = Watches()
        self._session_timeout_s = session_timeout_s
        self._last_contact: float | None = None
        """The loop's time of the last contact with the tree; None while connected."""
        self._has_expired = False
        self._session = tree.begin_session(self)
        self._lost: list[Callable[[], None]] = []
        self._context = copy_context()
        self._closed = False

    @property
    def session_id(self) -> int:
        return self._session

    @property
    def alive_until(self) -> float:
        last = asyncio.get_running_loop().time() if self._last_contact is None else self._last_contact
        return last + self._session_timeout_s

    @property
    def is_connected(self) -> bool:
        return self._last_contact is None

    def disconnect(self) -> None:
        """Lose the connection; the session expires unless `reconnect` is called within its time-out."""
        if self._last_contact is None:
            loop = asyncio.get_running_loop()
            self._last_contact = self._context.run(loop.time)
            loop.call_later(self._session_timeout_s, self._expire_if_disconnected, self._session, self._last_contact)

    def reconnect(self) -> None:
        """Connect again, with the same session or, if it has expired, a new one; fire all watches."""
        self._last_contact = None
        if self._has_expired:
            self.session_expired()
        else:
            self.watches.fire_all()

    def _expire_if_disconnected(self, session: int, since: float) -> None:
        if self._last_contact == since:
            self.tree.expire(session)

    async def get(self, path: str) -> Node | None:
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        await self._turn()
        records = (self._find(check_path(path)) for path in paths)
        return [None if record is None else Node(*record[:4]) for record in records]

    async def children(self, path: str) -> list[str]:
        await self._turn()
        return self._names(check_path(path))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._turn()
        return self.tree.commit(operations, self._session)

    def _find(self, path: str) -> Record | None:
        """Return a node as this session sees it."""
        return self.tree.find(path)

    def _names(self, path: str) -> list[str]:
        """Return the names of a node's children as this session sees them, sorted. Raises `NoNode`."""
        return self.tree.names(path)

    def note(self, before: Sequence[tuple[str, Record | None]], changes: Sequence[Change]) -> None:
        """Fire the watches of changed nodes, if connected; `before` has the nodes' former records, oldest first."""
        del before
        if self.is_connected:
            self.watches.fire(changes)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self.watches.add_data(check_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self.watches.add_children(check_path(path), callback)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._lost.append(callback)

    def session_expired(self) -> None:
        """Begin a new session and call the `on_session_lost` callbacks, now or with the next `reconnect`."""
        if self._closed:
            return
        self._has_expired = self._last_contact is not None
        if self._has_expired:
            return
        self._session = self.tree.begin_session(self)
        self.watches.fire_all()
        for callback in self._lost:
            asyncio.get_running_loop().call_soon(callback, context=self._context)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.watches.clear()
            self.tree.end_session(self._session)

    def abandon(self) -> None:
        """Close without ending the session, which the tree keeps until `MemoryTree.expire`."""
        self._closed = True
        self.watches.clear()

    async def _turn(self) -> None:
        """Yield to the event loop, then raise if the store is closed, is disconnected or has a new session."""
        if self._closed:
            raise StorageError("the metadata store is closed")
        session = self._session
        await asyncio.sleep(0)
        if self._closed:
            raise StorageError("the metadata store is closed")
        if self._last_contact is not None:
            raise UnavailableError("the metadata tree is out of reach")
        if session != self._session:
            raise SessionExpired
