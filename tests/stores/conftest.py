"""One conformance suite, three stores: `sessions` makes as many sessions with one tree as a test wants."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from odradek.metadata.store import Store
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree, SqliteStore, open_store

Sessions = Callable[[], Store]


_chroots = itertools.count()


@pytest_asyncio.fixture(params=["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.needs("zookeeper"))])
async def sessions(request, tmp_path: Path) -> AsyncIterator[Sessions]:
    opened: list[Store] = []
    tree = MemoryTree()
    url = ""
    if request.param == "zookeeper":
        url = f"zookeeper://{request.getfixturevalue('zookeeper').address}/tests/{next(_chroots)}"

    def begin() -> Store:
        if request.param == "memory":
            store: Store = MemoryStore(tree)
        elif url:
            store = open_store(url, system_runtime(), session_timeout_ms=10_000)
        else:
            store = SqliteStore(str(tmp_path / "metadata.sqlite"), system_runtime())
        opened.append(store)
        return store

    yield begin
    for store in opened:
        await store.close()
