"""M8. Commits of many partitions, and of partitions that no longer exist."""

from collections.abc import Sequence

import pytest

from odradek.clients.zookeeper_consumer import TopicFilter
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.clients.zookeeper_consumer.offset_storage import SessionOverError, ZookeeperOffsets
from odradek.clients.zookeeper_consumer.tree_groups import describe_group, list_groups, set_offsets
from odradek.metadata.store import Check, Operation, Result
from odradek.model import ConfigurationError, TopicPartition
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, produce
from tests.world.scenes import played

MOST_AT_ONCE = 1_000
MANY = {TopicPartition(f"t{number // 100}", number % 100): number for number in range(3 * MOST_AT_ONCE)}
NODE = f"/consumers/{GROUP}/ids/c"


class StrictStore(MemoryStore):
    """Refuses large transactions, as ZooKeeper does, and counts those that check the consumer's node."""

    checked = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        assert len(operations) <= MOST_AT_ONCE
        self.checked += Check(path=NODE) in operations
        return await super().multi(operations)


async def registered(store: MemoryStore) -> ZookeeperOffsets:
    """Register the consumer; return the offsets that it may write."""
    await create_persistent(store, [f"/consumers/{GROUP}", f"/consumers/{GROUP}/ids"])
    await store.create(NODE, ephemeral=True)
    return ZookeeperOffsets(store, GROUP, "c")


@played
async def test_a_large_commit_takes_several_transactions_and_each_checks_the_session(world: World) -> None:
    store = StrictStore(world.tree)
    offsets = await registered(store)
    for _ in range(2):  # the nodes are created, then set
        await offsets.commit(MANY, session_id=store.session_id)
        assert await offsets.fetch(MANY) == MANY
    assert store.checked >= 2 * len(MANY) / MOST_AT_ONCE


@played
async def test_a_large_commit_ends_with_the_session(world: World) -> None:
    class ShortStore(StrictStore):
        async def multi(self, operations: Sequence[Operation]) -> list[Result]:
            result = await super().multi(operations)
            if self.checked:
                world.tree.expire(self.session_id)
            return result

    store = ShortStore(world.tree)
    offsets = await registered(store)
    with pytest.raises(SessionOverError):
        await offsets.commit(MANY, session_id=store.session_id)
    assert 0 < len(await offsets.fetch(MANY)) < len(MANY)


@played
async def test_a_tool_writes_many_offsets_too(world: World) -> None:
    store = StrictStore(world.tree)
    await set_offsets(store, "copied", MANY)
    assert (await describe_group(store, "copied")).offsets == MANY


@played
async def test_a_tool_writes_into_no_other_group(world: World) -> None:
    store = MemoryStore(world.tree)
    with pytest.raises(ConfigurationError, match="it can't be 'a/ids'"):
        await set_offsets(store, "a/ids", {TopicPartition("t", 0): 3})
    assert await list_groups(store) == []


@pytest.mark.parametrize("strategy", ["zookeeper-range", "zookeeper-roundrobin"])
@played
async def test_readers_of_a_deleted_topic_go_on_at_once_with_the_others(world: World, strategy: str) -> None:
    """Offsets in Kafka: the coordinator refuses those of the deleted topic, and stores the others."""
    await world.create_topic("a")
    await world.create_topic("b")
    reader = Reader(
        world,
        "c",
        TopicFilter(expression="a|b"),
        offsets_storage="kafka",
        auto_commit_interval_ms=1_000_000,
        partition_assignment_strategy=strategy,
    )
    await reader.start()
    await produce(world, "a", (0, b"1"), (0, b"2"))
    await produce(world, "b", (0, b"1"), (0, b"2"))
    await expect(lambda: len(reader.read) == 4)
    deleted_at = world.now_s
    async with world.admin() as admin:
        await admin.delete_topics(["a"])
        await expect(lambda: set(reader.consumer.owned()) == {("b", 0)})
        assert reader.consumer.state is State.OWNING
        assert world.now_s - deleted_at < 10
        stored = (await admin.list_group_offsets([GROUP]))[GROUP]
    assert isinstance(stored, dict)
    assert {place: each.offset for place, each in stored.items()} == {("b", 0): 2}
    in_tree = (await describe_group(MemoryStore(world.tree), GROUP)).offsets
    assert in_tree[TopicPartition("b", 0)] == 2, "the tree has them, too (dual.commit.enabled)"
    await reader.stop()
