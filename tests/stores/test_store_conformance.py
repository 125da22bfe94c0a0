"""The conformance suite that every store of the tree passes (M9)."""

import asyncio

import pytest

from odradek.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    StoreError,
)
from odradek.model import StorageError
from odradek.runtime import system_runtime

pytestmark = pytest.mark.asyncio


class Calls:
    """A callback that counts, and can be awaited."""

    def __init__(self, watcher=None) -> None:
        self.count = 0
        self._watcher = watcher
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def next(self) -> None:
        async with asyncio.timeout(10):
            await self._event.wait()
        self._event.clear()
        if self._watcher is not None:
            await self._watcher.get("/")  # a watch holds from its session's next answer on


async def test_a_node_is_read_by_every_session_as_it_was_written(sessions) -> None:
    one, two = sessions(), sessions()
    assert await one.create("/a", b"1") == "/a"
    node = await two.get("/a")
    assert (node.data, node.version, node.owner) == (b"1", 0, 0)
    assert await two.get("/b") is None
    assert await two.get_many(["/b", "/a", "/b"]) == [None, node, None]


async def test_a_version_counts_sets_and_a_set_with_an_older_version_fails(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a")
    assert await one.set("/a", b"1") == 1
    assert await two.set("/a", b"2", version=1) == 2
    with pytest.raises(BadVersion, match="version 2, not 1"):
        await one.set("/a", b"3", version=1)
    with pytest.raises(BadVersion):
        await one.delete("/a", version=1)
    assert (await one.get("/a")).data == b"2"
    await one.delete("/a", version=2)
    assert await two.get("/a") is None


async def test_a_node_that_does_not_exist_cannot_be_changed(sessions) -> None:
    store = sessions()
    with pytest.raises(NoNode):
        await store.set("/a", b"")
    with pytest.raises(NoNode):
        await store.delete("/a")
    with pytest.raises(NoNode):
        await store.children("/a")
    with pytest.raises(NoNode) as error:
        await store.create("/a/b")
    assert error.value.path == "/a"


async def test_an_existing_node_cannot_be_created(sessions) -> None:
    store = sessions()
    await store.create("/a", b"first")
    with pytest.raises(NodeExists):
        await store.create("/a", b"second")
    assert (await store.get("/a")).data == b"first"


async def test_children_are_sorted_names_of_one_level(sessions) -> None:
    store = sessions()
    for path in ("/b", "/a", "/a/z", "/a/y", "/a/y/deep", "/ab"):
        await store.create(path)
    assert await store.children("/") == ["a", "ab", "b"]
    assert await store.children("/a") == ["y", "z"]
    assert await store.children("/b") == []


async def test_a_node_with_children_is_not_deleted(sessions) -> None:
    store = sessions()
    await store.create("/a")
    await store.create("/a/b")
    with pytest.raises(NotEmpty):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")
    with pytest.raises(NotEmpty):
        await store.delete("/")


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a\0b"])
async def test_an_invalid_path_is_refused(sessions, path) -> None:
    store = sessions()
    with pytest.raises(StoreError, match="not a path"):
        await store.create(path)
    with pytest.raises(StoreError, match="not a path"):
        await store.get(path)


async def test_sequence_numbers_rise_and_are_never_used_twice(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/queue")
    first = await one.create("/queue/n_", sequence=True)
    second = await two.create("/queue/n_", sequence=True)
    assert len(first) == len("/queue/n_") + 10
    assert first < second
    await one.delete(second)
    assert await one.create("/queue/n_", sequence=True) > second


async def test_a_recreated_node_has_a_higher_creation_id(sessions) -> None:
    store = sessions()
    await store.create("/a")
    before = (await store.get("/a")).created
    await store.delete("/a")
    await store.create("/a")
    assert (await store.get("/a")).created > before


async def test_an_ephemeral_node_shows_its_session_and_ends_with_it(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a", ephemeral=True)
    await one.create("/b")
    assert (await two.get("/a")).owner == one.session_id != two.session_id
    with pytest.raises(NoChildrenForEphemerals):
        await two.create("/a/b")
    await one.close()
    await one.close()
    assert await two.get("/a") is None
    assert await two.get("/b") is not None
    with pytest.raises(StorageError, match="closed"):
        await one.get("/b")


async def test_an_ephemeral_node_may_be_deleted_and_taken_by_another_session(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a", ephemeral=True)
    await two.delete("/a")
    await two.create("/a", ephemeral=True)
    await one.close()
    assert (await two.get("/a")).owner == two.session_id


async def test_operations_of_a_transaction_are_applied_together(sessions) -> None:
    store = sessions()
    results = await store.multi(
        [
            Create(path="/a", data=b"0"),
            Create(path="/a/b"),
            SetData(path="/a", data=b"1", version=0),
            Check(path="/a", version=1),
            Delete(path="/a/b"),
            Create(path="/a/s", sequence=True),
        ]
    )
    assert results[:5] == ["/a", "/a/b", 1, None, None]
    assert (await store.get("/a")).data == b"1"
    assert await store.children("/a") == [results[5].removeprefix("/a/")]


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Check(path="/old", version=7), BadVersion),
        (Check(path="/none"), NoNode),
        (Create(path="/old"), NodeExists),
        (Create(path="/none/child"), NoNode),
        (Delete(path="/old"), NotEmpty),
        (SetData(path="/old", data=b"", version=3), BadVersion),
    ],
)
async def test_a_failed_transaction_applies_nothing(sessions, failing, error) -> None:
    one, two = sessions(), sessions()
    await one.create("/old", b"old")
    await one.create("/old/child", ephemeral=True)
    calls = Calls()
    one.watch_data("/old", calls)
    one.watch_children("/", calls)
    undone = [
        SetData(path="/old", data=b"new"),
        Create(path="/new"),
        Create(path="/new/child"),
        Create(path="/old/s", sequence=True),
        failing,
    ]
    with pytest.raises(error):
        await one.multi([Delete(path="/old/child"), Create(path="/old/child"), *undone])
    assert (await two.get("/old"))[:2] == (b"old", 0)
    assert await two.children("/") == ["old"]
    assert await two.children("/old") == ["child"]
    assert (await two.get("/old/child")).owner == one.session_id
    assert (await one.create("/old/s", sequence=True)).startswith("/old/s000000000")
    await one.set("/old", b"end")
    await calls.next()
    assert calls.count == 1


async def test_a_data_watch_fires_for_creation_change_and_deletion_by_other_sessions(sessions) -> None:
    one, two = sessions(), sessions()
    calls = Calls(two)
    two.watch_data("/a", calls)
    await two.get("/a")
    await one.create("/a")
    await calls.next()
    await one.set("/a", b"1")
    await calls.next()
    await one.delete("/a")
    await calls.next()
    assert calls.count == 3


async def test_a_watch_fires_for_changes_of_its_own_session(sessions) -> None:
    store = sessions()
    calls = Calls()
    store.watch_data("/a", calls)
    await store.create("/a")
    await calls.next()
    assert calls.count == 1


async def test_a_children_watch_fires_for_children_only(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a")
    children, data = Calls(two), Calls(two)
    two.watch_children("/a", children)
    two.watch_data("/a/b", data)
    await two.children("/a")
    await one.create("/a/b")
    await children.next()
    await data.next()
    await one.set("/a/b", b"1")
    await data.next()
    await one.set("/a", b"1")
    await one.delete("/a/b")
    await children.next()
    await data.next()
    assert (children.count, data.count) == (2, 3)


async def test_many_changes_may_fire_a_watch_once(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a")
    calls = Calls()
    two.watch_data("/a", calls)
    await two.get("/a")
    await one.multi([SetData(path="/a", data=str(number).encode()) for number in range(100)])
    await calls.next()
    assert calls.count == 1
    assert (await two.get("/a")).data == b"99"


async def test_a_cancelled_watch_does_not_fire_for_earlier_changes(sessions) -> None:
    store = sessions()
    calls, other = Calls(), Calls()
    watch = store.watch_data("/a", calls)
    store.watch_data("/a", other)
    await store.create("/a")
    watch.cancel()
    watch.cancel()
    await other.next()
    await store.set("/a", b"")
    await other.next()
    assert calls.count <= 1
    count = calls.count
    await store.set("/a", b"")
    await other.next()
    assert calls.count == count


async def test_a_watch_fires_when_a_session_ends_with_its_ephemeral_nodes(sessions) -> None:
    one, two = sessions(), sessions()
    await one.create("/a", ephemeral=True)
    data, children = Calls(), Calls()
    two.watch_data("/a", data)
    two.watch_children("/", children)
    await two.get("/a")
    await one.close()
    await data.next()
    await children.next()
    assert await two.get("/a") is None


async def test_only_one_of_many_concurrent_creations_succeeds(sessions) -> None:
    stores = [sessions() for _ in range(5)]
    results = await asyncio.gather(
        *(store.create("/controller", ephemeral=True) for store in stores), return_exceptions=True
    )
    winners = [result for result in results if isinstance(result, str)]
    assert winners == ["/controller"]
    assert sum(isinstance(result, NodeExists) for result in results) == 4


async def test_concurrent_increments_by_many_sessions_are_all_counted(sessions) -> None:
    stores = [sessions() for _ in range(4)]
    await stores[0].create("/counter", b"0")

    async def raise_it(store) -> None:
        for _ in range(10):
            while True:
                node = await store.get("/counter")
                try:
                    await store.set("/counter", str(int(node.data) + 1).encode(), node.version)
                except BadVersion:
                    continue
                break

    await asyncio.gather(*(raise_it(store) for store in stores))
    assert (await stores[0].get("/counter"))[:2] == (b"40", 40)


async def test_a_connected_session_is_certainly_alive_for_a_while(sessions) -> None:
    store = sessions()
    clock = system_runtime().clock
    before = clock.monotonic()
    await store.create("/a", ephemeral=True)
    first = store.alive_until
    assert before < first <= clock.monotonic() + 60, "a session time-out of some seconds after an operation"


async def test_a_new_live_session_follows_one_that_was_ended(sessions) -> None:
    store, lost = sessions(), Calls()
    await store.create("/a", ephemeral=True)
    store.on_session_lost(lost)
    before = store.session_id
    await sessions.expire(store)
    await lost.next()
    assert store.session_id != before
    assert await store.get("/a") is None
    await store.create("/a", ephemeral=True)
    assert store.alive_until > system_runtime().clock.monotonic()
