"""The ZooKeeper store alone (M9): addresses, chroot, lost connections and sessions, beside a kazoo client."""

import asyncio
import errno
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from odradek.metadata.store import STUCK_SESSIONS, Create, SessionExpired, SetData
from odradek.model import ConfigurationError, StorageError, UnavailableError
from odradek.runtime import system_runtime
from odradek.stores import open_store, zookeeper
from odradek.stores.opening import parse_zookeeper_url
from odradek.stores.zookeeper import ZookeeperStore
from odradek.testing import eventually

pytestmark = pytest.mark.asyncio
needs_zookeeper = pytest.mark.needs("zookeeper")
_chroots = itertools.count()


@pytest_asyncio.fixture
async def begin(zookeeper) -> AsyncIterator[Callable[..., ZookeeperStore]]:
    opened: list[ZookeeperStore] = []
    chroot = f"/alone/{next(_chroots)}"

    def make(hosts: str = "", **settings: int) -> ZookeeperStore:
        settings = {"session_timeout_ms": 10_000, **settings}
        opened.append(ZookeeperStore(hosts or zookeeper.address, chroot, system_runtime(), **settings))
        return opened[-1]

    make.chroot = chroot  # type: ignore[attr-defined]
    yield make
    for store in opened:
        await store.close()


@contextmanager
def refused_port() -> Iterator[int]:
    """A port that refuses connections and stays reserved for the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class WatchCalls:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self._event.set()

    async def once(self) -> None:
        async with asyncio.timeout(60):
            await self._event.wait()
        self._event.clear()


def _end_session_of(store: ZookeeperStore, address: str) -> None:
    """End a session as an ensemble does: a connection takes it over and closes it."""
    thief = KazooClient(hosts=address, client_id=store._client.client_id)
    thief.start()
    thief.stop()
    thief.close()


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zookeeper://one:2181/kafka", "one:2181", "/kafka"),
        ("zookeeper://one", "one:2181", ""),
        ("zookeeper://one:1,two:2,three/a/b/", "one:1,two:2,three:2181", "/a/b"),
        ("zookeeper://[::1]:2181", "[::1]:2181", ""),
        ("zookeeper://[::1]/x", "[::1]:2181", "/x"),
    ],
)
async def test_an_address_has_servers_and_a_chroot(url, hosts, chroot) -> None:
    assert parse_zookeeper_url(url) == (hosts, chroot)


@pytest.mark.parametrize(
    "url",
    ["zookeeper://", "zookeeper:///x", "zookeeper://a:b", "zookeeper://a:0", "zookeeper://a,,b", "zookeeper://a/x//y"],
)
async def test_an_invalid_address_is_refused(url) -> None:
    with pytest.raises(ConfigurationError, match="zookeeper://"):
        open_store(url, system_runtime())


async def test_an_unreachable_ensemble_is_an_error_of_one_sentence() -> None:
    with refused_port() as port:
        store = ZookeeperStore(
            f"127.0.0.1:{port}", "", system_runtime(), session_timeout_ms=1000, connection_timeout_ms=200
        )
        with pytest.raises(UnavailableError, match=f"no ZooKeeper server answers at 127.0.0.1:{port}"):
            await store.get("/")
        await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.get("/")


async def test_closing_does_not_wait_for_a_server_that_does_not_respond() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        patience = {"session_timeout_ms": 250_000, "connection_timeout_ms": 200}
        store = ZookeeperStore(address, "", system_runtime(), **patience)
        with pytest.raises(UnavailableError, match=f"no ZooKeeper server answers at {address}"):
            await store.get("/")
        async with asyncio.timeout(120):
            await store.close()


async def test_a_server_that_does_not_respond_is_connected_to_again(monkeypatch) -> None:
    monkeypatch.setattr(zookeeper, "_MAX_CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = ZookeeperStore(
            f"127.0.0.1:{silent.getsockname()[1]}", "", system_runtime(), session_timeout_ms=1_000_000
        )
        reading = asyncio.create_task(store.get("/"))
        async with asyncio.timeout(60):
            first, _ = await asyncio.to_thread(silent.accept)
            second, _ = await asyncio.to_thread(silent.accept)
        with first, second:
            assert first.getpeername() != second.getpeername()
            reading.cancel()
            await store.close()


@needs_zookeeper
async def test_closing_does_not_wait_for_a_connection_that_is_being_made(begin) -> None:
    store = begin(connection_timeout_ms=100)
    handler, may_connect = store._client.handler, threading.Event()
    create = handler.create_connection

    def create_late(*arguments: Any, **options: Any) -> Any:
        assert may_connect.wait(60)
        return create(*arguments, **options)

    handler.create_connection = create_late
    with pytest.raises(UnavailableError):
        await store.get("/")
    closing = asyncio.create_task(store.close())
    await asyncio.to_thread(eventually, lambda: not handler._running)  # there was no connection to drop until here
    may_connect.set()
    done, _ = await asyncio.wait([closing], timeout=30)
    if not done:
        store._client._connection._socket.shutdown(socket.SHUT_RDWR)  # let this test end
    await closing
    assert done


@needs_zookeeper
async def test_the_tree_is_below_a_chroot_that_the_first_call_makes(begin, zookeeper) -> None:
    store = begin()
    await store.create("/a", b"1", ephemeral=True)
    other = KazooClient(hosts=zookeeper.address)
    other.start()
    data, stat = other.get(f"{begin.chroot}/a")
    other.stop()
    other.close()
    assert (data, stat.ephemeralOwner) == (b"1", store.session_id)
    assert (await store.get("/a")).owner == store.session_id


@needs_zookeeper
async def test_one_server_of_several_is_enough(begin, zookeeper) -> None:
    with refused_port() as nobody:
        store = begin(f"127.0.0.1:{nobody},{zookeeper.address}")
        await store.create("/a")
        assert await store.children("/") == ["a"]


@needs_zookeeper
async def test_an_expired_session_is_replaced_and_all_watches_fire(begin, zookeeper) -> None:
    store, other = begin(), begin()
    lost, data = WatchCalls(), WatchCalls()
    await store.create("/a", ephemeral=True)
    store.on_session_lost(lost)
    store.watch_data("/a", data)
    before = store.session_id
    await asyncio.to_thread(_end_session_of, store, zookeeper.address)
    await lost.once()
    await data.once()
    assert store.session_id not in (0, before)
    assert await store.get("/a") is None
    await store.get("/")
    await other.create("/a")
    await data.once()


@needs_zookeeper
async def test_an_operation_of_an_expired_session_is_not_executed_in_the_next(begin, zookeeper) -> None:
    store = begin()
    await store.create("/a")
    await asyncio.to_thread(_end_session_of, store, zookeeper.address)
    with pytest.raises((SessionExpired, UnavailableError)):
        # The one, or the other where the connection goes first: in no case is anything written.
        for _ in range(1000):
            await store.multi([SetData(path="/a", data=b"", version=0), Create(path="/b", ephemeral=True)])
    assert (await store.get("/a")).version == 0


@needs_zookeeper
async def test_session_watches_and_reads_continue_when_a_server_returns(begin, zookeeper) -> None:
    patience = {"session_timeout_ms": 60_000, "connection_timeout_ms": 60_000}
    store, other = begin(**patience), begin(**patience)
    lost, children = WatchCalls(), WatchCalls()
    await store.create("/a", ephemeral=True)
    store.on_session_lost(lost)
    other.watch_children("/", children)
    assert await other.children("/") == ["a"]
    session = store.session_id
    await asyncio.to_thread(zookeeper.kill)
    reading = asyncio.create_task(other.get("/a"))
    await asyncio.to_thread(zookeeper.start)
    assert (await reading).owner == session == store.session_id
    await children.once()
    await other.children("/")
    await store.create("/b")
    await children.once()
    assert await other.children("/") == ["a", "b"]
    assert not lost._event.is_set()


@needs_zookeeper
async def test_a_children_watch_fires_for_a_node_created_while_it_is_set(begin, zookeeper, monkeypatch):
    """Between the answer that there is no such node and the question that watches for its creation."""
    store, other = begin(), begin()
    await store.get("/")
    heard, exists = WatchCalls(), store._client.exists_async
    rival = KazooClient(hosts=zookeeper.address)
    rival.start()

    def exists_by_now(path: str, **more: object) -> object:
        rival.ensure_path(f"{begin.chroot}{path}")
        return exists(path, **more)

    monkeypatch.setattr(store._client, "exists_async", exists_by_now)
    store.watch_children("/late", heard)
    await heard.once()
    await other.create("/late/child")
    await heard.once()
    assert await store.children("/late") == ["child"]
    rival.stop()
    rival.close()


@needs_zookeeper
async def test_an_unexpected_error_in_kazoo_is_a_lost_connection(begin, zookeeper, monkeypatch) -> None:
    """The error used to end kazoo's thread, so that no server was connected to any more."""
    store = begin(session_timeout_ms=60_000, connection_timeout_ms=60_000)
    await store.create("/a", b"1")
    expand, failures = store._client._connection._expand_client_hosts, [OSError(errno.EMFILE, "many"), ValueError("?")]

    def fail_at_first() -> object:
        if failures:
            raise failures.pop()
        return expand()

    monkeypatch.setattr(store._client._connection, "_expand_client_hosts", fail_at_first)
    store._client._connection._socket.shutdown(socket.SHUT_RDWR)
    await asyncio.to_thread(eventually, lambda: not failures)
    async with asyncio.timeout(60):
        assert (await store.get("/a")).data == b"1"


@needs_zookeeper
async def test_an_abandoned_session_ends_after_its_timeout(begin) -> None:
    store, other = begin(session_timeout_ms=400), begin()
    heard = WatchCalls()
    await store.create("/a", ephemeral=True)
    other.watch_data("/a", heard)
    assert await other.get("/a") is not None
    store.abandon()
    await heard.once()
    assert await other.get("/a") is None


@needs_zookeeper
async def test_an_idle_session_proves_its_liveness_by_transactions_and_not_by_reads(begin, zookeeper) -> None:
    store = begin(session_timeout_ms=4_000, connection_timeout_ms=60_000)
    await store.create("/a", ephemeral=True)
    first = store.alive_until
    await asyncio.to_thread(eventually, lambda: store.alive_until > first)  # a beat every third of the time-out
    asking = system_runtime().clock.monotonic()
    await store.get("/a")
    assert asking < store.alive_until < asking + 4
    await asyncio.to_thread(zookeeper.kill)
    last = store.alive_until
    await asyncio.to_thread(eventually, lambda: system_runtime().clock.monotonic() >= last)
    assert store.alive_until == last, "nothing was heard, so nothing is sure"
    await asyncio.to_thread(zookeeper.start)
    await asyncio.to_thread(eventually, lambda: system_runtime().clock.monotonic() < store.alive_until)


@needs_zookeeper
async def test_a_stuck_loop_loses_its_session_although_kazoo_could_keep_it(begin, monkeypatch) -> None:
    store, other = begin(session_timeout_ms=4_000), begin()
    heard = WatchCalls()
    await store.create("/a", ephemeral=True)
    other.watch_data("/a", heard)
    assert await other.get("/a") is not None
    monkeypatch.setattr(store._heartbeat, "_turn", lambda: None)
    store._heartbeat._turned_at -= STUCK_SESSIONS * 4 + 1
    store._heartbeat._timer.cancel()
    await heard.once()
    assert await other.get("/a") is None


@needs_zookeeper
async def test_heartbeats_are_sent_and_counted_while_the_loop_is_busy(begin) -> None:
    store = begin(session_timeout_ms=4_000)
    await store.create("/a")
    before = store.alive_until
    eventually(lambda: store.alive_until > before)  # blocks the loop
    assert store.alive_until > before


@needs_zookeeper
async def test_the_granted_session_timeout_counts_and_not_the_requested_one(begin) -> None:
    store = begin(session_timeout_ms=3_600_000)
    await store.create("/a")
    assert store.alive_until < system_runtime().clock.monotonic() + 600, "it grants twenty ticks"
