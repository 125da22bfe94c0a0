"""The tree in memory, for tests and the simulator: sessions of one process share a `MemoryTree`.

A session ends when it is closed, when whoever plays the time-out calls `MemoryTree.expire`, or by the time-out itself
after `MemoryStore.disconnect`. Every operation gives the event loop a turn first, as a store outside the process would:
callers cannot count on being undisturbed.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
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
    """Nodes, and the sessions that are open. Lives on one event loop."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._names: dict[str, set[str]] = {ROOT: set()}
        self._sessions: dict[int, MemoryStore] = {}
        self._undo: list[tuple[str, Record | None]] = []
        self._last_session = 0
        self._last_transaction = 0
        self._records[ROOT] = Record(data=b"", version=0, owner=PERSISTENT, created=0, next_sequence=0)

    def find(self, path: str) -> Record | None:
        """See `Tree`."""
        return self._records.get(path)

    def save(self, path: str, record: Record) -> None:
        """See `Tree`."""
        self._undo.append((path, self._records.get(path)))
        self._put(path, record)

    def remove(self, path: str) -> None:
        """See `Tree`."""
        self._undo.append((path, self._records[path]))
        self._put(path, None)

    def has_children(self, path: str) -> bool:
        """See `Tree`."""
        return bool(self._names[path])

    def names(self, path: str) -> list[str]:
        """Names of a node's children, sorted; raises `NoNode`."""
        if path not in self._names:
            raise NoNode(path)
        return sorted(self._names[path])

    def begin_session(self, store: "MemoryStore") -> int:
        """A number for a new session of `store`."""
        self._last_session += 1
        self._sessions[self._last_session] = store
        return self._last_session

    def end_session(self, session: int) -> None:
        """Delete the session's ephemeral nodes; the session is told nothing."""
        if self._sessions.pop(session, None) is not None:
            owned = [path for path, record in self._records.items() if record.owner == session]
            self.commit([Delete(path=path) for path in owned], session)

    def expire(self, session: int) -> None:
        """End a session as if it had been silent for too long; its store finds out now and begins a new one."""
        store = self._sessions.get(session)
        self.end_session(session)
        if store is not None:
            store.session_expired()

    def commit(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """All operations or none, and the watches of every session are fired."""
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
        self._fire(changes)
        return results

    def _fire(self, changes: list[Change]) -> None:
        for store in self._sessions.values():
            if store.is_connected:
                store.watches.fire(changes)

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
    """One session with a `MemoryTree`, of `session_timeout_s`."""

    def __init__(self, tree: MemoryTree, *, session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S) -> None:
        self.tree = tree
        self.watches = Watches()
        self._session_timeout_s = session_timeout_s
        self._heard_last: float | None = None
        """When the tree was last in reach, by the loop's time; None while it is."""
        self._has_expired = False
        self._session = tree.begin_session(self)
        self._lost: list[Callable[[], None]] = []
        self._closed = False

    @property
    def session_id(self) -> int:
        """See `Store`."""
        return self._session

    @property
    def alive_until(self) -> float:
        """See `Store`: a session time-out from now, or from when the connection was lost."""
        last = asyncio.get_running_loop().time() if self._heard_last is None else self._heard_last
        return last + self._session_timeout_s

    @property
    def is_connected(self) -> bool:
        """Whether the tree is in reach."""
        return self._heard_last is None

    def disconnect(self) -> None:
        """Be cut off from the tree, which lets the session expire if it is not in touch again in time."""
        if self._heard_last is None:
            loop = asyncio.get_running_loop()
            self._heard_last = loop.time()
            loop.call_later(self._session_timeout_s, self._expire_if_silent, self._session, self._heard_last)

    def reconnect(self) -> None:
        """Be in touch again, in the same session or in a new one."""
        self._heard_last = None
        if self._has_expired:
            self.session_expired()
        else:
            self.watches.fire_all()

    def _expire_if_silent(self, session: int, since: float) -> None:
        if self._heard_last == since:
            self.tree.expire(session)

    async def get(self, path: str) -> Node | None:
        """See `Store`."""
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """See `Store`."""
        await self._turn()
        records = (self.tree.find(check_path(path)) for path in paths)
        return [None if record is None else Node(*record[:4]) for record in records]

    async def children(self, path: str) -> list[str]:
        """See `Store`."""
        await self._turn()
        return self.tree.names(check_path(path))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """See `Store`."""
        await self._turn()
        return self.tree.commit(operations, self._session)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        return self.watches.add_data(check_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        return self.watches.add_children(check_path(path), callback)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """See `Store`."""
        self._lost.append(callback)

    def session_expired(self) -> None:
        """Called by the tree: begin a new session and tell, unless nobody is there to be told, or not yet."""
        if self._closed:
            return
        self._has_expired = self._heard_last is not None
        if self._has_expired:
            return
        self._session = self.tree.begin_session(self)
        self.watches.fire_all()
        for callback in self._lost:
            asyncio.get_running_loop().call_soon(callback)

    async def close(self) -> None:
        """See `Store`."""
        if not self._closed:
            self._closed = True
            self.watches.clear()
            self.tree.end_session(self._session)

    def abandon(self) -> None:
        """See `Store`; the tree keeps the session until somebody calls `MemoryTree.expire`."""
        self._closed = True
        self.watches.clear()

    async def _turn(self) -> None:
        """Give the loop a turn, and notice what happened to the session meanwhile."""
        if self._closed:
            raise StorageError("the metadata store is closed")
        session = self._session
        await asyncio.sleep(0)
        if self._closed:
            raise StorageError("the metadata store is closed")
        if self._heard_last is not None:
            raise UnavailableError("the metadata tree is out of reach")
        if session != self._session:
            raise SessionExpired
