"""The broker's `Store`, which counts operations, and lets other tasks run after `multi` and `get_many`.

A store in this process never waits. Without the pauses here, writing a thousand nodes would block all other tasks, and
the broker's own session could expire.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from odradek.metadata.store import Node, Operation, Result, SingleOperations, Store, Watch

GET: Final = "Get"
CHILDREN: Final = "Children"
MULTI: Final = "Multi"
"""Keys of `counts`. The others are the classes of the operations in a `multi`: Create, SetData, Delete, Check."""


class CountedStore(SingleOperations):
    """Wraps a store; `counts` has the number of operations by name."""

    def __init__(self, store: Store) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def alive_until(self) -> float:
        return self._store.alive_until

    async def get(self, path: str) -> Node | None:
        self.counts[GET] += 1
        return await self._store.get(path)

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        self.counts[GET] += len(wanted)
        nodes = await self._store.get_many(wanted)
        await asyncio.sleep(0)
        return nodes

    async def children(self, path: str) -> list[str]:
        self.counts[CHILDREN] += 1
        return await self._store.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self.counts[MULTI] += 1
        self.counts.update(type(operation).__name__ for operation in operations)
        results = await self._store.multi(operations)
        await asyncio.sleep(0)
        return results

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._store.watch_data(path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._store.watch_children(path, callback)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._store.on_session_lost(callback)

    async def close(self) -> None:
        await self._store.close()

    def abandon(self) -> None:
        self._store.abandon()
