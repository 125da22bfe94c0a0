"""The SQLite store alone: other processes that are killed or stopped, and files that are not trees (M9)."""

import asyncio
import fcntl
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from odradek.metadata.store import SessionExpired
from odradek.model import ConfigurationError, StorageError, UnavailableError
from odradek.runtime import DiskLock, Runtime, SystemDisk, system_runtime
from odradek.stores import MemoryStore, SqliteStore, open_store, sqlite_reader, sqlite_tree
from odradek.stores.zookeeper import ZookeeperStore
from odradek.testing import eventually

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def session_process(path: Path, node: str, *, session_timeout_ms: int = 60_000):
    script = Path(__file__).with_name("session_process.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), f"sqlite:///{path}", node, str(session_timeout_ms), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def gone(store, path: str) -> None:
    """Return when the watch has fired and the node does not exist."""
    changed = asyncio.Event()
    watch = store.watch_data(path, changed.set)
    async with asyncio.timeout(30):
        while await store.get(path) is not None:
            await changed.wait()
            changed.clear()
    watch.cancel()


def directory(path: Path) -> Path:
    return Path(f"{path}.sessions")


def locks(path: Path) -> list[str]:
    return sorted(each.name for each in directory(path).iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "metadata.sqlite"


async def test_a_store_that_opens_waits_for_a_process_that_is_writing(path) -> None:
    await SqliteStore(str(path), system_runtime()).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.ensure_future(asyncio.to_thread(SqliteStore, str(path), system_runtime()))
        await asyncio.to_thread(eventually, lambda: locks(path))  # it has come to its session's first transaction
        other.execute("COMMIT")
    store = await opening
    assert await store.create("/a", ephemeral=True) == "/a"
    await store.close()


async def test_changes_of_other_processes_are_noticed_soon() -> None:
    assert sqlite_reader.POLL_INTERVAL_S <= 0.05


async def test_a_killed_process_loses_its_ephemeral_nodes_at_once(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    async with session_process(path, "/a") as process:
        assert (await store.get("/a")).owner not in {0, store.session_id}
        os.kill(process.pid, signal.SIGKILL)
        await gone(store, "/a")
    await store.close()
    assert locks(path) == []


async def test_the_session_of_a_killed_process_is_expired_by_the_next_process_that_starts(path) -> None:
    async with session_process(path, "/a"):
        pass
    store = SqliteStore(str(path), system_runtime())
    assert await store.get("/a") is None
    await store.create("/a", ephemeral=True)
    await store.close()


async def test_a_stopped_process_loses_its_nodes_with_its_lease_and_notices_when_resumed(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    async with session_process(path, "/a", session_timeout_ms=300) as process:
        os.kill(process.pid, signal.SIGSTOP)
        await gone(store, "/a")
        os.kill(process.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"lost True\n"
    await store.close()


async def test_a_live_session_is_not_expired_however_short_its_lease(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    async with session_process(path, "/a", session_timeout_ms=300):
        other = (await store.get("/a")).owner

        lease = directory(path) / f"{other:016x}"
        first = lease.stat().st_mtime
        await asyncio.to_thread(eventually, lambda: lease.stat().st_mtime >= first + 0.6)
        assert (await store.get("/a")).owner == other
    await store.close()


async def test_a_session_is_certainly_alive_until_its_lease_ends(path) -> None:
    store = SqliteStore(str(path), system_runtime(), session_timeout_ms=3_000)
    await store.create("/a", ephemeral=True)
    first = store.alive_until
    await asyncio.to_thread(eventually, lambda: store.alive_until > first)
    [name] = locks(path)
    assert first < store.alive_until <= (directory(path) / name).stat().st_mtime < store.alive_until + 0.001
    await store.close()


async def test_a_watch_fires_for_a_change_by_another_process(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    changed = asyncio.Event()
    store.watch_children("/", changed.set)
    async with session_process(path, "/a"), asyncio.timeout(30):
        await changed.wait()
        assert await store.children("/") == ["a"]
    await store.close()


def expire_session(path: Path, session_id: int) -> None:
    """Expire a session as another process does."""
    with sqlite3.connect(path) as rows:
        rows.execute("DELETE FROM nodes WHERE owner = ?", (session_id,))
        rows.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
    rows.close()


async def test_an_expired_session_writes_nothing_and_is_replaced(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    lost, watched = asyncio.Event(), asyncio.Event()
    store.on_session_lost(lost.set)
    store.watch_data("/watched", watched.set)
    await store.create("/a")
    first = store.session_id
    expire_session(path, first)
    with pytest.raises(SessionExpired) as error:
        await store.set("/a", b"late")
    assert error.value.retriable
    assert (await store.get("/a")).data == b""
    assert store.session_id != first
    async with asyncio.timeout(30):
        await lost.wait()
        await watched.wait()
    await store.set("/a", b"again")
    await store.close()


async def test_an_idle_session_notices_that_it_was_expired(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    lost = asyncio.Event()
    store.on_session_lost(lost.set)
    expire_session(path, store.session_id)
    async with asyncio.timeout(30):
        await lost.wait()
    assert await store.create("/a", ephemeral=True) == "/a"
    await store.close()


async def test_waiting_for_another_process_does_not_block_the_loop(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    creation = asyncio.create_task(store.create("/a"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not creation.done()
    other.execute("COMMIT")
    other.close()
    assert await creation == "/a"
    await store.close()


class SkippingClock:
    """Every look at the clock is a second later."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


async def test_a_process_that_holds_the_database_for_long_is_an_error_that_names_it(path) -> None:
    real = system_runtime()
    runtime = Runtime(clock=SkippingClock(), entropy=real.entropy, disk=real.disk, network=real.network)
    store = SqliteStore(str(path), runtime)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="another process holds the metadata database"):
        await store.create("/a")
    other.execute("ROLLBACK")
    other.close()
    await store.close()


async def test_a_watcher_that_missed_more_changes_than_are_kept_is_notified_of_all_paths(path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite_tree, "CHANGES_KEPT", 10)
    monkeypatch.setattr(sqlite_tree, "_PRUNE_EVERY", 5)
    one, two = (SqliteStore(str(path), system_runtime()) for _ in range(2))
    changed = asyncio.Event()
    await one.create("/counter")
    two.watch_data("/never", changed.set)
    for _ in range(30):
        await one.set("/counter", b"")
    async with asyncio.timeout(30):
        await changed.wait()
    with sqlite3.connect(path) as rows:
        assert rows.execute("SELECT count(*) FROM changes").fetchone()[0] <= 15
    rows.close()
    await one.close()
    await two.close()


async def test_an_abandoned_session_is_expired_by_other_processes(path) -> None:
    one, two = (SqliteStore(str(path), system_runtime()) for _ in range(2))
    await one.create("/a", ephemeral=True)
    one.abandon()
    await gone(two, "/a")
    assert await two.children("/") == []
    await two.close()


async def test_committed_nodes_exist_when_the_file_is_reopened(path) -> None:
    one = SqliteStore(str(path), system_runtime())
    await one.create("/a", b"1")
    one.abandon()
    two = SqliteStore(str(path), system_runtime())
    assert (await two.get("/a")).data == b"1"
    await two.close()


async def test_lock_files_without_a_session_are_removed(path) -> None:
    store = SqliteStore(str(path), system_runtime())
    orphan = f"{1:016x}"
    (directory(path) / orphan).touch()
    (directory(path) / "notes").touch()
    other = SqliteStore(str(path), system_runtime())
    assert locks(path) == sorted(["notes", f"{store.session_id:016x}", f"{other.session_id:016x}"])
    await store.close()
    await other.close()


class InterruptedDisk(SystemDisk):
    """Calls `interrupt` once, between making a lock file and locking it."""

    def __init__(self, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._interrupt: Callable[[], None] | None = interrupt
        self._monkeypatch = monkeypatch

    def lock(self, path: str, note: str) -> DiskLock:
        if self._interrupt is None or self.exists(path):
            return super().lock(path, note)
        interrupt, self._interrupt = self._interrupt, None
        flock = fcntl.flock

        def interrupted(descriptor: int, operation: int) -> None:
            self._monkeypatch.setattr(fcntl, "flock", flock)
            interrupt()
            flock(descriptor, operation)

        self._monkeypatch.setattr(fcntl, "flock", interrupted)
        return super().lock(path, note)


async def test_a_session_survives_the_removal_of_its_new_lock_file(path, monkeypatch) -> None:
    """With `odradek up`, the next starting broker expired the session of a live one that had just started."""
    first = SqliteStore(str(path), system_runtime())
    await first.create("/a")
    others: list[SqliteStore] = []

    def sweep() -> None:
        assert len(locks(path)) == 2, "the new session has a file by now, and no lock yet"
        others.append(SqliteStore(str(path), system_runtime()))
        assert len(locks(path)) == 2, "the other one has swept it away"

    real = system_runtime()
    disk = InterruptedDisk(sweep, monkeypatch)
    store = SqliteStore(str(path), Runtime(clock=real.clock, entropy=real.entropy, disk=disk, network=real.network))
    session = store.session_id
    assert len(others) == 1
    others.append(SqliteStore(str(path), system_runtime()))  # which checks the locks of all sessions
    assert await store.create("/a/b", ephemeral=True) == "/a/b"
    assert store.session_id == session
    for each in (first, store, *others):
        await each.close()
    assert locks(path) == []


async def test_a_session_takes_another_number_while_its_lock_file_is_being_removed(path, monkeypatch) -> None:
    holders: list[DiskLock] = []
    real = system_runtime()

    def hold() -> None:
        [name] = locks(path)
        holders.append(real.disk.lock(str(directory(path) / name), "a sweeper"))

    disk = InterruptedDisk(hold, monkeypatch)
    store = SqliteStore(str(path), Runtime(clock=real.clock, entropy=real.entropy, disk=disk, network=real.network))
    assert len(holders) == 1
    assert len(locks(path)) == 2
    assert await store.create("/a", ephemeral=True) == "/a"
    holders[0].release()
    await store.close()


async def test_a_file_that_is_not_a_database_is_left_alone(tmp_path) -> None:
    file = tmp_path / "text"
    file.write_text("these are my notes, and they are long enough to be taken for a header of something " * 20)
    before = file.read_bytes()
    with pytest.raises(StorageError, match="not a metadata database"):
        open_store(f"sqlite:///{file}", system_runtime())
    assert file.read_bytes() == before


async def test_a_database_of_another_program_is_left_alone(tmp_path) -> None:
    file = tmp_path / "other.sqlite"
    rows = sqlite3.connect(file)
    rows.execute("CREATE TABLE theirs (x)")
    rows.close()
    before = file.read_bytes()
    with pytest.raises(StorageError, match="another application"):
        open_store(f"sqlite:///{file}", system_runtime())
    assert file.read_bytes() == before


async def test_a_tree_of_a_later_release_is_refused(path) -> None:
    await SqliteStore(str(path), system_runtime()).close()
    rows = sqlite3.connect(path)
    rows.execute("PRAGMA user_version = 99")
    rows.close()
    with pytest.raises(StorageError, match="format 99"):
        SqliteStore(str(path), system_runtime())


async def test_an_unwritable_place_is_an_error_of_one_sentence(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"can't create a directory .*/file is not a directory$"):
        open_store(f"sqlite:///{tmp_path}/file/metadata.sqlite", system_runtime())
    (tmp_path / "directory").mkdir()
    with pytest.raises(StorageError, match=r"can't open .*/directory: Is a directory$"):
        open_store(f"sqlite:///{tmp_path}/directory", system_runtime())


async def test_the_error_names_a_folder_of_another_user(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("sqlite3.connect", refuse)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StorageError, match=rf"/m.sqlite: this user may not write {tmp_path}$"):
        sqlite_tree.SqliteTree(str(tmp_path / "m.sqlite"))


async def test_a_database_of_another_user_is_not_taken_for_a_read_only_one(
    path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await SqliteStore(str(path), system_runtime()).close()
    monkeypatch.setattr("os.access", lambda asked, mode: asked != str(path))
    with pytest.raises(StorageError, match=rf"can't open .*: this user may not write {path}$"):
        SqliteStore(str(path), system_runtime())


async def test_the_url_selects_the_store(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory:", system_runtime()), MemoryStore)
    relative = open_store("sqlite:///here.sqlite", system_runtime())
    await relative.close()
    assert (tmp_path / "here.sqlite").exists()
    assert isinstance(open_store("zookeeper://localhost:2181/kafka", system_runtime()), ZookeeperStore)
    for url in ("sqlite://x", "sqlite:///", "file:x", ""):
        with pytest.raises(ConfigurationError, match="sqlite:///PATH"):
            open_store(url, system_runtime())


async def test_a_full_disk_is_logged_once_and_its_end_once(path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "odradek")
    store = SqliteStore(str(path), system_runtime(), session_timeout_ms=3)
    store.watch_data("/a", lambda: None)  # it looks from now on
    failing = True
    looks = 0
    look = store._poll_once

    def look_or_fail() -> None:
        nonlocal looks
        looks += 1
        if failing:
            raise sqlite3.OperationalError("database or disk is full")
        look()

    store._poll_once = look_or_fail
    async with asyncio.timeout(30):
        while looks < 4:
            await asyncio.sleep(0)
        failing = False
        while "works again" not in caplog.text:
            await asyncio.sleep(0)
    await store.close()
    assert caplog.text.count("database or disk is full") == 1
    assert caplog.text.count("works again") == 1
