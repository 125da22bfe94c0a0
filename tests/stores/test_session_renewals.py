"""A busy event loop keeps its session, a stuck one does not, and an expired session is never prolonged (M9)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from odradek.metadata.store import STUCK_SESSIONS, SessionExpired
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree, SqliteStore

pytestmark = pytest.mark.asyncio
TIMEOUT_S = 9.0


class MovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


class ManualTicker:
    """A ticker whose thread is the test."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def start(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        assert interval_s < TIMEOUT_S / 4, "a lease must not end between two ticks"
        self.works.append(work)
        return lambda: self.works.remove(work)

    def tick(self) -> None:
        for work in self.works:
            work()


def begin(tmp_path: Path, clock: MovedClock) -> tuple[SqliteStore, ManualTicker]:
    ticker = ManualTicker()
    runtime = replace(system_runtime(), clock=clock, ticker=ticker)
    store = SqliteStore(str(tmp_path / "tree.sqlite"), runtime, session_timeout_ms=int(TIMEOUT_S * 1000))
    store.on_session_lost(lambda: None)
    return store, ticker


async def test_a_busy_loop_keeps_its_session_for_a_bounded_time(tmp_path: Path) -> None:
    clock = MovedClock()
    store, ticker = begin(tmp_path, clock)
    await store.create("/node", ephemeral=True)
    stuck_at = clock.seconds + STUCK_SESSIONS * TIMEOUT_S
    while clock.seconds < stuck_at:  # the loop does not turn here
        ticker.tick()
        assert store.alive_until > clock.seconds
        clock.seconds += TIMEOUT_S / 8
    last = store.alive_until
    for _ in range(8):
        clock.seconds += TIMEOUT_S / 8
        ticker.tick()
    assert store.alive_until == last < clock.seconds
    observer, _ = begin(tmp_path, clock)
    assert await observer.get("/node") is None
    await observer.close()
    await store.close()
    assert not ticker.works


async def test_a_lease_that_the_loop_renews_is_left_alone(tmp_path: Path) -> None:
    clock = MovedClock()
    store, ticker = begin(tmp_path, clock)
    before = store.alive_until
    clock.seconds += TIMEOUT_S / 3
    ticker.tick()
    assert store.alive_until == before
    await store.close()


async def test_an_expired_session_is_not_prolonged(tmp_path: Path) -> None:
    clock = MovedClock()
    store, ticker = begin(tmp_path, clock)
    await store.create("/node", ephemeral=True)
    lease = store.alive_until
    clock.seconds += TIMEOUT_S + 1
    observer, _ = begin(tmp_path, clock)  # expires the late session
    ticker.tick()
    assert store.alive_until == lease
    with pytest.raises(SessionExpired):
        await store.create("/other", ephemeral=True)
    await observer.close()
    await store.close()


# ---- The memory store alone ------------------------------------------------------------------------------------------


async def test_an_expired_session_loses_its_nodes_and_is_replaced() -> None:
    tree = MemoryTree()
    one, two = MemoryStore(tree), MemoryStore(tree)
    lost, watched = asyncio.Event(), asyncio.Event()
    one.on_session_lost(lost.set)
    one.watch_data("/b", watched.set)
    await one.create("/a", ephemeral=True)
    first = one.session_id
    late = asyncio.create_task(one.create("/late"))
    await asyncio.sleep(0)
    tree.expire(first)
    with pytest.raises(SessionExpired):
        await late
    await lost.wait()
    await watched.wait()
    assert await two.get("/a") is None
    assert await two.get("/late") is None
    assert one.session_id != first
    await one.create("/a", ephemeral=True)


async def test_an_abandoned_session_keeps_its_nodes_until_it_expires() -> None:
    tree = MemoryTree()
    one, two = MemoryStore(tree), MemoryStore(tree)
    await one.create("/a", ephemeral=True)
    one.abandon()
    assert await two.get("/a") is not None
    tree.expire(one.session_id)
    assert await two.get("/a") is None
