"""The watches of one session by path; several changes before a callback runs cause one call."""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import copy_context

from odradek.metadata.paths import parent
from odradek.stores.semantics import Change


class _Watch:
    """One callback of one path, which runs in the context in which it was added. `_due`: a call is scheduled."""

    __slots__ = ("_callback", "_context", "_due", "_path", "_table")

    def __init__(self, table: dict[str, list["_Watch"]], path: str, callback: Callable[[], None]) -> None:
        self._table = table
        self._path = path
        self._callback: Callable[[], None] | None = callback
        self._context = copy_context()
        self._due = False
        table.setdefault(path, []).append(self)

    def cancel(self) -> None:
        if self._callback is None:
            return
        self._callback = None
        watches = self._table[self._path]
        watches.remove(self)
        if not watches:
            del self._table[self._path]

    def fire(self) -> None:
        """Schedule the callback for the loop's next iteration, unless it is scheduled already."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._call, context=self._context)

    def _call(self) -> None:
        self._due = False
        if self._callback is not None:
            self._callback()


class Watches:
    """All watches of a session."""

    def __init__(self) -> None:
        self._data: dict[str, list[_Watch]] = {}
        self._children: dict[str, list[_Watch]] = {}

    def add_data(self, path: str, callback: Callable[[], None]) -> _Watch:
        return _Watch(self._data, path, callback)

    def add_children(self, path: str, callback: Callable[[], None]) -> _Watch:
        return _Watch(self._children, path, callback)

    def fire(self, changes: Iterable[Change]) -> None:
        """Fire the data watches of changed nodes, and their parents' child watches if `existence`."""
        for path, existence in changes:
            for watch in self._data.get(path, ()):
                watch.fire()
            if existence:
                for watch in self._children.get(parent(path), ()):
                    watch.fire()

    def fire_children(self, path: str) -> None:
        for watch in self._children.get(path, ()):
            watch.fire()

    def has_data(self, path: str) -> bool:
        return path in self._data

    def has_children(self, path: str) -> bool:
        return path in self._children

    def data_paths(self) -> list[str]:
        return list(self._data)

    def children_paths(self) -> list[str]:
        return list(self._children)

    def most_of_a_node(self) -> int:
        """Return the highest number of data watches, or of child watches, of one path."""
        return max((len(watches) for table in (self._data, self._children) for watches in table.values()), default=0)

    def fire_all(self) -> None:
        """Fire all watches, for unknown changes."""
        for table in (self._data, self._children):
            for watches in table.values():
                for watch in watches:
                    watch.fire()

    def clear(self) -> None:
        for table in (self._data, self._children):
            for watch in [watch for watches in table.values() for watch in watches]:
                watch.cancel()
