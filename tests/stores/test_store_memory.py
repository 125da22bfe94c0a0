"""The memory store alone: a session that a test expires."""

import asyncio

import pytest

from odradek.metadata.store import SessionExpired
from odradek.stores import MemoryStore, MemoryTree

pytestmark = pytest.mark.asyncio


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
