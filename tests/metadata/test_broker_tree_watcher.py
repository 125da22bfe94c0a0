"""The watcher of a broker that is not the controller, with reads and writes at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ConfigNode
from odradek.metadata.store import Node
from odradek.metadata.tree_watchers import BrokerTreeWatcher
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation


class LateAnswers(MemoryStore):
    """A store whose reads return when `answer` is set, with the content of the time of the call."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.answer = asyncio.Event()
        self.answer.set()

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        nodes = await super().get_many(paths)
        await self.answer.wait()
        return nodes


class FollowedTree:
    """A tree that a test writes to, and a member that follows it."""

    def __init__(self) -> None:
        tree = MemoryTree()
        self.tool, self.store = MemoryStore(tree), LateAnswers(tree)
        self.woken = asyncio.Event()
        self.watcher = BrokerTreeWatcher(self.store, wake=self.woken.set)

    async def begin(self) -> None:
        for path in paths.PERSISTENT_ROOTS:
            await self.tool.create(path)
        self.watcher.start()
        await self.watcher.refresh()

    async def configure(self, topic: str, value: str) -> None:
        path, data = paths.topic_config(topic), ConfigNode(config={"retention.ms": value}).encode()
        await (self.tool.create(path, data) if await self.tool.get(path) is None else self.tool.set(path, data))
        await asyncio.sleep(0)

    async def look_when_woken(self) -> None:
        while self.woken.is_set():
            self.woken.clear()
            await self.watcher.refresh()
            await asyncio.sleep(0)


def with_tree(scenario: Callable[[FollowedTree], Coroutine[Any, Any, None]]) -> Callable[[int], None]:
    """Return a test that runs `scenario` in virtual time."""

    def test(seed: int) -> None:
        async def main() -> None:
            tree = FollowedTree()
            await tree.begin()
            await scenario(tree)

        Simulation(seed).run(main())

    return test


@with_tree
async def test_a_change_during_the_first_read_of_a_topic_is_not_lost(tree: FollowedTree) -> None:
    await tree.configure("a", "1")
    tree.store.answer.clear()
    reading = asyncio.create_task(tree.watcher.read_configs(["a"]))
    await asyncio.sleep(0.01)
    await tree.configure("a", "2")
    looking = asyncio.create_task(tree.look_when_woken())
    await asyncio.sleep(0.01)
    tree.store.answer.set()
    await reading
    await looking
    await tree.look_when_woken()
    assert tree.watcher.configs == {"a": {"retention.ms": "2"}}


@with_tree
async def test_a_topic_no_longer_followed_when_its_read_ends_is_not_marked_as_followed(tree: FollowedTree) -> None:
    """Otherwise its changes would never be read when it is followed again."""
    await tree.configure("a", "1")
    tree.store.answer.clear()
    reading = asyncio.create_task(tree.watcher.read_configs(["a"]))
    await asyncio.sleep(0.01)
    tree.watcher.follow_only(())
    tree.store.answer.set()
    await reading
    assert "a" not in tree.watcher.configs
    await tree.watcher.read_configs(["a"])
    await tree.configure("a", "2")
    await tree.look_when_woken()
    assert tree.watcher.configs == {"a": {"retention.ms": "2"}}


@with_tree
async def test_a_read_that_began_earlier_does_not_undo_broker_configurations(tree: FollowedTree) -> None:
    """Commands have the tree read while it is being read."""
    path = paths.broker_config(1)
    await tree.tool.create(path, ConfigNode(config={"a": "1"}).encode())
    tree.woken.clear()
    tree.watcher.mark(configs=True, controller=True)
    first_get, tree.store.get = tree.store.get, _slow(tree.store.get)  # type: ignore[method-assign]
    looking = asyncio.create_task(tree.watcher.refresh())
    await asyncio.sleep(0.01)
    tree.store.get = first_get  # type: ignore[method-assign]
    await tree.tool.delete(path)
    await asyncio.sleep(0)
    await tree.look_when_woken()
    await looking
    await tree.look_when_woken()
    assert not tree.watcher.patch(ClusterImage()).broker_configs


def _slow(get: Callable[[str], Awaitable[Node | None]]) -> Callable[[str], Awaitable[Node | None]]:
    async def slowly(path: str) -> Node | None:
        node = await get(path)
        await asyncio.sleep(0.1)
        return node

    return slowly
