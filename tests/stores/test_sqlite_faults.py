"""A SQLite file in trouble: removed or replaced under its processes, only readable, held by another program (M9)."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from odradek.model import StorageError
from odradek.runtime import Runtime, system_runtime
from odradek.stores import SqliteStore

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


class MovedClock:
    """A clock that a test moves; what is awaited meanwhile is awaited for real."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


def store_with_moved_clock(path: Path) -> tuple[SqliteStore, MovedClock]:
    real, clock = system_runtime(), MovedClock()
    runtime = Runtime(clock=clock, entropy=real.entropy, disk=real.disk, network=real.network)
    return SqliteStore(str(path), runtime, session_timeout_ms=9_000), clock


async def polled(store: SqliteStore, times: int = 2) -> None:
    """Return when the store's timer has polled."""
    looks, complete = store._poll_once, asyncio.Event()
    left = times

    def look() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            complete.set()
        looks()

    store._poll_once = look
    async with asyncio.timeout(60):
        await complete.wait()
    del store._poll_once
    await asyncio.sleep(0)


async def test_removing_the_database_file_ends_all_sessions_in_time(path, caplog) -> None:
    store, clock = store_with_moved_clock(path)
    await store.create("/a", ephemeral=True)
    store.watch_data("/a", lambda: None)
    end = store.alive_until
    aside = path.with_name("aside")
    path.rename(aside)
    with pytest.raises(StorageError, match=f"{path} failed: the file was removed while it was in use"):
        await store.create("/b")
    clock.seconds += 5
    await polled(store)
    assert store.alive_until == end, "nobody who opens the file now would see that it was renewed"
    assert caplog.text.count("the file was removed while it was in use") == 1
    aside.rename(path)
    await polled(store)
    assert store.alive_until > end
    await store.create("/b")
    await store.close()


async def test_a_replaced_database_file_is_detected(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    path.rename(path.with_name("aside"))
    other = SqliteStore(str(path), system_runtime())
    with pytest.raises(StorageError, match="replaced by another one while it was in use"):
        await store.create("/a")
    assert await other.children("/") == []
    await other.close()
    store.abandon()


async def test_a_read_only_database_is_read_and_its_session_ends_in_time(path, caplog) -> None:
    store, clock = store_with_moved_clock(path)
    await store.create("/a", b"1")
    end = store.alive_until
    connection = store._tree._connection
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="readonly database"):
        await store.set("/a", b"2")
    assert (await store.get("/a")).data == b"1"
    clock.seconds += 5
    await polled(store)
    assert store.alive_until == end
    assert caplog.text.count("readonly database") == 1
    connection.execute("PRAGMA query_only = OFF")
    await polled(store)
    assert store.alive_until > end
    await store.close()


async def test_the_error_names_the_program_that_holds_the_database(path, caplog) -> None:
    store, clock = store_with_moved_clock(path)
    await store.create("/a", b"1")
    end = store.alive_until
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        clock.seconds += 4
        await polled(store)
        assert caplog.text == "", "a moment is nothing"
        clock.seconds += 2
        await polled(store)
        assert caplog.text.count("another process holds it, and nothing can be written") == 1
        assert (await store.get("/a")).data == b"1"
        assert store.alive_until == end
        other.execute("ROLLBACK")
    await polled(store)
    assert store.alive_until > end
    await store.close()


async def test_a_full_disk_ends_no_session_because_a_renewal_writes_nothing(path) -> None:
    store, clock = store_with_moved_clock(path)
    await store.create("/a", ephemeral=True)
    end = store.alive_until
    files = [path, path.with_name(f"{path.name}-wal")]
    before = [file.read_bytes() for file in files]
    clock.seconds += 5
    await polled(store)
    assert store.alive_until == end + 5
    assert [file.read_bytes() for file in files] == before
    await store.close()


async def test_the_write_ahead_log_has_space_in_advance_even_after_a_crash(path) -> None:
    log = path.with_name(f"{path.name}-wal")
    for name in ("/a", "/b"):
        store = SqliteStore(str(path), system_runtime())
        size = os.stat(log).st_size
        assert size == os.stat(log).st_blocks * 512 == 8 << 20
        await store.create(name)
        assert os.stat(log).st_size == size
        shutil.copytree(path.parent, path.with_name("copy"))
        await store.close()
        path = path.with_name("copy") / path.name  # what a process that was killed would leave
        log = path.with_name(log.name)
    store = SqliteStore(str(path), system_runtime())
    assert await store.children("/") == ["a", "b"]
    await store.close()


async def test_a_session_whose_locked_file_was_removed_is_replaced(path) -> None:
    store, clock = store_with_moved_clock(path)
    await store.create("/a", ephemeral=True)
    lost = asyncio.Event()
    store.on_session_lost(lost.set)
    [lease] = path.with_name(f"{path.name}.sessions").iterdir()
    lease.unlink()
    clock.seconds += 5
    async with asyncio.timeout(60):
        await lost.wait()
    assert await store.get("/a") is None
    assert store.alive_until == clock.seconds + 9
    await store.close()
