"""Sessions whose reads lag, as those of a follower of ZooKeeper do."""

import asyncio
import random

import pytest

from odradek.metadata.store import BadVersion, NoNode
from odradek.simulation.virtual.simulation import Simulation
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.stores import MemoryStore, MemoryTree

_LAG_S = 5.0


def _play(scenario) -> None:
    async def main() -> None:
        tree = MemoryTree()
        reader = SlowStore(tree, random.Random(3), 0.001, lag_s=_LAG_S)
        await scenario(reader, MemoryStore(tree))

    Simulation(3).run(main())


def test_changes_of_other_sessions_appear_late_and_in_order() -> None:
    async def write(writer: MemoryStore) -> None:
        for name in ("x", "y", "z"):
            await writer.create(f"/a/{name}")
            await writer.set("/a", name.encode())
            await asyncio.sleep(2 * _LAG_S)
        await writer.delete("/a/x")

    async def scenario(reader: SlowStore, writer: MemoryStore) -> None:
        seen: list[tuple[list[str], int]] = []
        await reader.create("/a")
        writing = asyncio.create_task(write(writer))
        async with asyncio.timeout(100 * _LAG_S):
            while not seen or seen[-1] != (["y", "z"], 3):
                names = await reader.children("/a")
                node = await reader.get("/a")
                assert node is not None
                seen.append((names, node.version))
        await writing
        assert seen[0] == ([], 0)
        assert len(set(map(str, seen))) > 3
        assert [version for _, version in seen] == sorted(version for _, version in seen)

    _play(scenario)


def test_a_node_that_was_deleted_is_read_until_the_follower_knows() -> None:
    async def scenario(reader: SlowStore, writer: MemoryStore) -> None:
        await reader.create("/a", b"old")
        await reader.create("/a/b")
        await writer.delete("/a/b")
        await writer.delete("/a")
        node = await reader.get("/a")
        assert node is not None
        assert node.data == b"old"
        assert await reader.children("/a") == ["b"]
        await asyncio.sleep(20 * _LAG_S)
        assert await reader.get("/a") is None
        with pytest.raises(NoNode):
            await reader.children("/a")

    _play(scenario)


def test_a_write_shows_all_that_happened_before_also_if_it_is_refused() -> None:
    async def scenario(reader: SlowStore, writer: MemoryStore) -> None:
        await writer.create("/a", b"new")
        await reader.create("/b")
        assert await reader.children("/") == ["a", "b"]
        await writer.set("/a", b"newer")
        with pytest.raises(BadVersion):
            await reader.set("/a", b"mine", 0)
        node = await reader.get("/a")
        assert node is not None
        assert node.data == b"newer"

    _play(scenario)


def test_a_watch_fires_when_the_reads_of_its_session_show_the_change() -> None:
    async def scenario(reader: SlowStore, writer: MemoryStore) -> None:
        fired = asyncio.Event()
        reader.watch_children("/", fired.set)
        await writer.create("/a")
        assert await reader.children("/") == []
        assert not fired.is_set()
        async with asyncio.timeout(20 * _LAG_S):
            await fired.wait()
        assert await reader.children("/") == ["a"]

    _play(scenario)


def test_a_connection_to_another_server_does_not_go_back_and_a_new_session_sees_all() -> None:
    async def scenario(reader: SlowStore, writer: MemoryStore) -> None:
        await writer.create("/a")
        await reader.create("/b")
        await writer.create("/c")
        reader.disconnect()
        reader.reconnect()
        assert await reader.children("/") == ["a", "b"]
        reader.tree.expire(reader.session_id)
        assert await reader.children("/") == ["a", "b", "c"]

    _play(scenario)
