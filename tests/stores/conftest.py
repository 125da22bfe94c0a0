"""One conformance suite, two stores: `sessions` makes as many sessions with one tree as a test wants."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio

from odradek.metadata.store import Store
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree, SqliteStore

Sessions = Callable[[], Store]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def sessions(request, tmp_path: Path) -> AsyncIterator[Sessions]:
    opened: list[Store] = []
    tree = MemoryTree()

    def begin() -> Store:
        if request.param == "memory":
            store: Store = MemoryStore(tree)
        else:
            store = SqliteStore(str(tmp_path / "metadata.sqlite"), system_runtime())
        opened.append(store)
        return store

    yield begin
    for store in opened:
        await store.close()
