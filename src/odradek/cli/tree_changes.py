"""A stream of changes in a metadata tree: nodes created, deleted, or changed."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from msgspec import Struct

from odradek.metadata.paths import child
from odradek.metadata.store import Node, NoNode, Reader, SessionExpired, Watch


class TreeChange(Struct, frozen=True, kw_only=True):
    """A change: `event` is created, changed or deleted; `node` is the new node, None after a deletion."""

    event: str
    path: str
    node: Node | None


class _Known(Struct):
    """A watched path; `node` is None while it does not exist. `depth` levels below it are watched (None: all)."""

    depth: int | None
    watches: list[Watch]
    node: Node | None = None
    names: frozenset[str] = frozenset()


class TreeChanges:
    """The changes of the node at `path`, which need not exist, and of `depth` levels below it (None: all).

    Each node is watched before it is read: the last state is never missed, but quick changes may be reported as one.
    """

    def __init__(self, tree: Reader, path: str, *, depth: int | None) -> None:
        self._tree = tree
        self._path = path
        self._depth = depth
        self._known: dict[str, _Known] = {}
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()

    @property
    def is_there(self) -> bool:
        """Whether the node at `path` existed when it was last read."""
        return self._known[self._path].node is not None

    async def start(self) -> None:
        """Read the current nodes; `follow` yields only later changes."""
        self._add(self._path, self._depth)
        async for _ in self._changes():
            continue

    def stop(self) -> None:
        for known in self._known.values():
            for watch in known.watches:
                watch.cancel()
        self._known.clear()

    async def follow(self) -> AsyncIterator[TreeChange]:
        """Yield changes without end. Raises the store's errors."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async for change in self._changes():
                yield change

    async def _changes(self) -> AsyncIterator[TreeChange]:
        """Yield the changes at marked paths, and at the new paths below them."""
        while self._due:
            path = next(iter(self._due))
            del self._due[path]
            if path not in self._known:
                continue
            try:
                node, names = await self._read(path)
            except SessionExpired:
                self._mark(path)  # a reader can go on in the new session
                continue
            for change in self._compare(path, node, names):
                yield change

    async def _read(self, path: str) -> tuple[Node | None, frozenset[str]]:
        node = await self._tree.get(path)
        if node is None or self._known[path].depth == 0:
            return node, frozenset()
        try:
            return node, frozenset(await self._tree.children(path))
        except NoNode:
            return None, frozenset()

    def _compare(self, path: str, node: Node | None, names: frozenset[str]) -> Iterator[TreeChange]:
        known = self._known[path]
        before, known.node = known.node, node
        went, came = sorted(known.names - names), sorted(names - known.names)
        known.names = names
        for name in went:
            yield from self._remove(child(path, name))
        if before is not None and (node is None or node.created != before.created):
            yield TreeChange(event="deleted", path=path, node=None)
            before = None
        if node is not None and before is None:
            yield TreeChange(event="created", path=path, node=node)
        elif node is not None and before is not None and node.version != before.version:
            yield TreeChange(event="changed", path=path, node=node)
        for name in came:
            self._add(child(path, name), None if known.depth is None else known.depth - 1)

    def _add(self, path: str, depth: int | None) -> None:
        watches = [self._tree.watch_data(path, lambda: self._mark(path))]
        if depth != 0:
            watches.append(self._tree.watch_children(path, lambda: self._mark(path)))
        self._known[path] = _Known(depth, watches)
        self._mark(path)

    def _remove(self, path: str) -> Iterator[TreeChange]:
        known = self._known.pop(path)
        for watch in known.watches:
            watch.cancel()
        for name in sorted(known.names):
            yield from self._remove(child(path, name))
        if known.node is not None:
            yield TreeChange(event="deleted", path=path, node=None)

    def _mark(self, path: str) -> None:
        self._due[path] = None
        self._wake.set()
