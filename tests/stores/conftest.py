"""One conformance suite, three stores: `sessions` makes as many sessions with one tree as a test wants."""

import asyncio
import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from odradek.metadata.store import Store
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree, SqliteStore, open_store
from odradek.stores.zookeeper import ZookeeperStore

_chroots = itertools.count()


class Sessions(ABC):
    """Sessions with one tree: a call begins one, and `expire` ends one as a store that considers it dead does."""

    def __init__(self) -> None:
        self.opened: list[Store] = []

    def __call__(self) -> Store:
        self.opened.append(self.begin())
        return self.opened[-1]

    @abstractmethod
    def begin(self) -> Store: ...

    @abstractmethod
    async def expire(self, store: Store) -> None: ...


class MemorySessions(Sessions):
    def __init__(self) -> None:
        super().__init__()
        self.tree = MemoryTree()

    def begin(self) -> Store:
        return MemoryStore(self.tree)

    async def expire(self, store: Store) -> None:
        self.tree.expire(store.session_id)


class SqliteSessions(Sessions):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def begin(self) -> Store:
        return SqliteStore(str(self.path), system_runtime())

    async def expire(self, store: Store) -> None:
        with closing(sqlite3.connect(self.path)) as rows, rows:
            rows.execute("DELETE FROM nodes WHERE owner = ?", (store.session_id,))
            rows.execute("DELETE FROM sessions WHERE id = ?", (store.session_id,))


class ZookeeperSessions(Sessions):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.chroot = f"/tests/{next(_chroots)}"

    def begin(self) -> Store:
        return open_store(f"zookeeper://{self.address}{self.chroot}", system_runtime(), session_timeout_ms=10_000)

    async def expire(self, store: Store) -> None:
        """A connection that takes the session over ends it."""
        from kazoo.client import KazooClient

        assert isinstance(store, ZookeeperStore)
        client_id = store._client.client_id

        def steal() -> None:
            thief = KazooClient(hosts=self.address, client_id=client_id)
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.to_thread(steal)


@pytest_asyncio.fixture(params=["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.needs("zookeeper"))])
async def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sessions]:
    sessions: Sessions
    if request.param == "memory":
        sessions = MemorySessions()
    elif request.param == "sqlite":
        sessions = SqliteSessions(tmp_path / "metadata.sqlite")
    else:
        sessions = ZookeeperSessions(request.getfixturevalue("zookeeper").address)
    yield sessions
    for store in sessions.opened:
        await store.close()
