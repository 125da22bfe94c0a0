"""ACLs in the tree: Kafka's format, and a watch that reads what notifications name."""

import asyncio
from collections.abc import Iterable

import pytest

from odradek.broker.security import acl_changes
from odradek.broker.security.acl_changes import write_acls
from odradek.metadata import paths
from odradek.metadata.acl_nodes import AclNodes, decode_acls, decode_change, encode_acls, encode_change
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.reading import BrokenNodes
from odradek.metadata.store import Node
from odradek.model import ErrorCode, KafkaError
from odradek.security import (
    AclEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.stores import MemoryStore, MemoryTree
from tests.world.scenes import awaited

T = ResourcePattern(ResourceType.TOPIC, "t")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "p-", PatternType.PREFIXED)
READ = AclEntry(principal="User:alice", operation=AclOperation.READ)
ACTION = AclEntry(
    principal="User:b:c",
    host="10.0.0.1",
    operation=AclOperation.CLUSTER_ACTION,
    permission_type=AclPermissionType.DENY,
)
JSON = (
    b'{"version":1,"acls":['
    b'{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:b:c","permissionType":"Deny","operation":"ClusterAction","host":"10.0.0.1"}]}'
)


def test_nodes_have_kafkas_paths_and_content() -> None:
    assert paths.acl(T) == "/kafka-acl/Topic/t"
    assert paths.acl(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/p-"
    assert encode_acls([READ, ACTION]) == JSON
    assert decode_acls("/kafka-acl/Topic/t", JSON) == (READ, ACTION)
    assert decode_acls("/kafka-acl/Topic/t", b"") == ()
    assert encode_change(T) == b"TOPIC:t"
    for pattern in (T, PREFIX, ResourcePattern(ResourceType.GROUP, "a:b")):
        assert decode_change(paths.acl_change(pattern), encode_change(pattern)) == pattern
    assert decode_change("/kafka-acl-changes/acl_changes_1", b"Topic:t") == T


@pytest.mark.parametrize(
    "part",
    [b'"operation":"Fly"', b'"operation":"Any"', b'"operation":1', b'"permissionType":"Perhaps"', b'"host":null'],
)
def test_a_node_with_an_unknown_part_is_broken_as_a_whole(part: bytes) -> None:
    name = part.partition(b":")[0]
    data = JSON.replace(b'"operation":"Read"', b'"operation":"Read","extra":1')
    known = next(each for each in data.split(b"{")[2].rstrip(b"},").split(b",") if each.startswith(name))
    with pytest.raises(BrokenNodeError):
        decode_acls("/kafka-acl/Topic/t", data.replace(known, part, 1))


class CountingStore(MemoryStore):
    """A store that notes which nodes are read."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.read: list[str] = []

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        self.read += wanted
        return await super().get_many(wanted)


def ignore(_: str) -> None:
    """Log no change."""


class Watched:
    """A tree that has `tool` as its writer, and a watch of its ACLs."""

    def __init__(self) -> None:
        tree = MemoryTree()
        self.tool, self.store = MemoryStore(tree), CountingStore(tree)
        self.marks = 0
        self.nodes = AclNodes(self.store, BrokenNodes(), self._mark)

    def _mark(self) -> None:
        self.marks += 1

    async def begin(self) -> "Watched":
        for path in paths.PERSISTENT_ROOTS:
            await self.tool.create(path)
        self.nodes.start()
        return self

    async def add(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        await write_acls(self.tool, {pattern: frozenset(entries).union}, ignore)
        await asyncio.sleep(0)

    async def remove(self, pattern: ResourcePattern) -> None:
        await write_acls(self.tool, {pattern: lambda _: frozenset()}, ignore)
        await asyncio.sleep(0)


@awaited
async def test_only_resources_that_notifications_name_are_read() -> None:
    watched = await Watched().begin()
    for number in range(20):
        await watched.add(T._replace(name=f"t{number}"), READ)
    first = await watched.nodes.read()
    assert len(first) == 20
    watched.store.read.clear()
    watched.marks = 0
    await watched.add(PREFIX, READ, ACTION)
    assert watched.marks
    assert watched.nodes.has_changed
    await watched.remove(T._replace(name="t3"))
    second = await watched.nodes.read()
    assert not watched.nodes.has_changed
    assert second == {**{key: value for key, value in first.items() if key.name != "t3"}, PREFIX: (READ, ACTION)}
    assert [each for each in watched.store.read if "changes" not in each] == [
        "/kafka-acl/Topic/t3",
        "/kafka-acl-extended/prefixed/TransactionalId/p-",
    ]
    assert await watched.tool.get("/kafka-acl/Topic/t3") is None, "a resource without ACLs has no node"


@awaited
async def test_all_is_read_again_if_notifications_are_missing_or_broken() -> None:
    watched = await Watched().begin()
    await watched.nodes.read()
    await watched.add(T, READ)
    for name in await watched.tool.children(paths.ACL_CHANGES):
        await watched.tool.delete(f"{paths.ACL_CHANGES}/{name}")
    await watched.add(PREFIX, READ)
    await watched.add(T._replace(name="u"), READ)
    assert {each.name for each in await watched.nodes.read()} == {"t", "u", "p-"}
    await watched.tool.create("/kafka-acl/Group/g", encode_acls([READ]))
    await watched.tool.create(f"{paths.ACL_CHANGES}/acl_changes_", b"nonsense", sequence=True)
    assert {each.name for each in await watched.nodes.read()} == {"t", "u", "p-", "g"}


@awaited
async def test_a_broken_node_keeps_its_last_acls_and_otherwise_denies_everything() -> None:
    watched = await Watched().begin()
    await watched.add(T, READ)
    await watched.nodes.read()
    await watched.tool.set("/kafka-acl/Topic/t", b"{")
    await watched.tool.create("/kafka-acl/Topic/u", b"[]")
    for name in ("t", "u"):
        await watched.tool.create(paths.acl_change(T), f"Topic:{name}".encode(), sequence=True)
    acls = await watched.nodes.read()
    assert acls[T] == (READ,)
    (denied,) = acls[T._replace(name="u")]
    assert (denied.principal, denied.host, denied.operation) == ("User:*", "*", AclOperation.ALL)
    assert denied.permission_type is AclPermissionType.DENY
    with pytest.raises(BrokenNodeError):
        await watched.add(T, ACTION)


class Racing(MemoryStore):
    """A store in which another writer adds an ACL before each write, `races` times."""

    def __init__(self, tree: MemoryTree, races: int) -> None:
        super().__init__(tree)
        self.races = races
        self.other = MemoryStore(tree)

    async def multi(self, operations):  # type: ignore[no-untyped-def]
        if self.races:
            self.races -= 1
            entry = AclEntry(principal=f"User:{self.races}", operation=AclOperation.WRITE)
            await write_acls(self.other, {T: frozenset({entry}).union}, ignore)
        return await super().multi(operations)


@awaited
async def test_writers_at_the_same_time_lose_no_acl_and_give_up_after_ten_attempts() -> None:
    tree = MemoryTree()
    tool = MemoryStore(tree)
    for path in paths.PERSISTENT_ROOTS:
        await tool.create(path)
    logged: list[str] = []
    changed = await write_acls(Racing(tree, 3), {T: frozenset({READ}).union}, logged.append)
    assert changed == {T: {READ}}
    assert len(logged) == 1, "an attempt that fails is no change"
    node = await tool.get(paths.acl(T))
    assert node is not None
    assert [each.principal for each in decode_acls("", node.data)] == ["User:0", "User:1", "User:2", "User:alice"]
    with pytest.raises(KafkaError) as failed:
        await write_acls(Racing(tree, 20), {T: frozenset({ACTION}).union}, ignore)
    assert failed.value.code == ErrorCode.request_timed_out


class Counted(MemoryStore):
    """A store that counts its transactions."""

    transactions = 0

    async def multi(self, operations):  # type: ignore[no-untyped-def]
        self.transactions += 1
        return await super().multi(operations)


@pytest.mark.parametrize("most_bytes", [1_000_000, 10_000])
@awaited
async def test_many_patterns_are_written_in_few_transactions(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of them, every broker goes over all ACLs."""
    monkeypatch.setattr(acl_changes, "_MOST_BYTES", most_bytes)
    tree = MemoryTree()
    store = Counted(tree)
    for path in paths.PERSISTENT_ROOTS:
        await store.create(path)
    store.transactions = 0
    patterns = [T._replace(name=f"t{number}") for number in range(300)]
    logged: list[str] = []
    added = await write_acls(store, {each: frozenset({READ}).union for each in patterns}, logged.append)
    assert added == {each: {READ} for each in patterns}
    assert (len(logged), len(await store.children("/kafka-acl/Topic"))) == (300, 300)
    assert len(await store.children(paths.ACL_CHANGES)) == 300
    assert store.transactions <= (5 if most_bytes == 1_000_000 else 40)
    assert await write_acls(store, {each: frozenset({READ}).union for each in patterns}, logged.append) == {
        each: frozenset() for each in patterns
    }
    removed = await write_acls(store, {each: lambda _: frozenset() for each in patterns}, logged.append)
    assert removed == added
    assert await store.children("/kafka-acl/Topic") == []


@pytest.mark.parametrize(("limit", "room"), [("_MOST_ENTRIES", 2), ("_MOST_BYTES", 200)])
@awaited
async def test_a_pattern_has_room_for_some_acls(limit: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, limit, room)
    watched = await Watched().begin()
    await watched.add(T, READ, ACTION)
    third = AclEntry(principal="User:third", operation=AclOperation.READ)
    with pytest.raises(KafkaError, match="would have 3 ACLs; it has room for") as failed:
        await watched.add(T, third)
    assert failed.value.code == ErrorCode.invalid_request
    monkeypatch.setattr(acl_changes, limit, 0)
    changed = await write_acls(watched.tool, {T: lambda acls: acls - {READ}}, ignore)
    assert changed == {T: {READ}}, "a pattern with too many can lose some"


@awaited
async def test_old_notifications_are_deleted() -> None:
    watched = await Watched().begin()
    for number in range(1001):
        await watched.tool.create(f"{paths.ACL_CHANGES}/acl_changes_{number:010}", b"TOPIC:t")
    await watched.add(PREFIX, READ)
    names = await watched.tool.children(paths.ACL_CHANGES)
    assert (len(names), names[-1]) == (500, "acl_changes_0000001000")
