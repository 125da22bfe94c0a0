"""The tree as a broker has it: a store that counts what is asked of it, and after which others have their turn.

A store in this process never waits for an answer: who writes a thousand nodes would hold everybody else up for as many
syncs of a disk, and by then the broker's own session may be over.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from odradek.metadata.store import Node, Operation, Result, SingleOperations, Store, Watch

GET: Final = "Get"
CHILDREN: Final = "Children"
MULTI: Final = "Multi"
"""What is counted beside `Create`, `SetData`, `Delete` and `Check`, which come in a `Multi`, alone or with others."""


class CountedStore(SingleOperations):
    """Another store, with `counts` of operations by name: nodes that were read, and those that were written."""

    def __init__(self, store: Store) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store

    @property
    def session_id(self) -> int:
        """See `Store`."""
        return self._store.session_id

    @property
    def alive_until(self) -> float:
        """See `Store`."""
        return self._store.alive_until

    async def get(self, path: str) -> Node | None:
        """See `Store`."""
        self.counts[GET] += 1
        return await self._store.get(path)

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """See `Store`."""
        wanted = list(paths)
        self.counts[GET] += len(wanted)
        nodes = await self._store.get_many(wanted)
        await asyncio.sleep(0)
        return nodes

    async def children(self, path: str) -> list[str]:
        """See `Store`."""
        self.counts[CHILDREN] += 1
        return await self._store.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """See `Store`."""
        self.counts[MULTI] += 1
        self.counts.update(type(operation).__name__ for operation in operations)
        results = await self._store.multi(operations)
        await asyncio.sleep(0)
        return results

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        return self._store.watch_data(path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `Store`."""
        return self._store.watch_children(path, callback)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """See `Store`."""
        self._store.on_session_lost(callback)

    async def close(self) -> None:
        """See `Store`."""
        await self._store.close()

    def abandon(self) -> None:
        """See `Store`."""
        self._store.abandon()
