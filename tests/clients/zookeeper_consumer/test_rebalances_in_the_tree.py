"""M4. Consumers of generation 1 share a topic through the tree: SPEC 4's walk, broadcast and unicast, filters."""

import pytest

from odradek.clients.zookeeper_consumer import RebalanceFailedError, TopicFilter
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.metadata.nodes import ConsumerNode
from odradek.model import ConfigurationError, TopicPartition
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, owners, produce
from tests.world.scenes import played


@played
async def test_members_join_and_leave_one_by_one(world: World) -> None:
    await world.create_topic("t", 3)
    readers = [Reader(world, f"c{number}", {"t": 1}) for number in range(1, 5)]
    walk = [[{0, 1, 2}], [{0, 1}, {2}], [{0}, {1}, {2}], [{0}, {1}, {2}, set()]]
    for count, expected in enumerate(walk, 1):
        await readers[count - 1].start()
        await expect(lambda count=count, expected=expected: owners(*readers[:count]) == expected)
    await readers[0].stop()
    await expect(lambda: owners(*readers[1:]) == [{0}, {1}, {2}])
    await readers[1].stop()
    await expect(lambda: owners(*readers[2:]) == [{0, 1}, {2}])
    await readers[2].stop()
    await expect(lambda: readers[3].owned == {0, 1, 2})
    await readers[3].stop()


@played
async def test_groups_get_everything_and_members_of_a_group_one_each(world: World) -> None:
    await world.create_topic("t", 3)
    single = await Reader(world, "single", {"t": 1}, group_id="one").start()
    members = [await Reader(world, f"c{number}", {"t": 1}, group_id="three").start() for number in range(3)]
    await expect(lambda: owners(*members) == [{0}, {1}, {2}])
    await produce(world, "t", (0, b"a"), (1, b"b"), (2, b"c"))
    await expect(lambda: sorted(single.read) == [b"a", b"b", b"c"])
    await expect(lambda: [member.read for member in members] == [[b"a"], [b"b"], [b"c"]])
    for reader in (single, *members):
        await reader.stop()


@played
async def test_the_tree_shows_ids_owners_and_offsets_as_published(world: World) -> None:
    """M9."""
    await world.create_topic("t", 2)
    reader = await Reader(world, "c1", {"t": 2}).start()
    tree = MemoryStore(world.tree)
    ids = f"/consumers/{GROUP}/ids/{GROUP}_c1"
    node = await tree.get(ids)
    assert node is not None
    assert node.owner == reader.store.session_id, "it is ephemeral"
    known = ConsumerNode.decode(ids, node.data)
    assert (known.subscription, known.pattern) == ({"t": 2}, "static")
    owners_of = [await tree.get(f"/consumers/{GROUP}/owners/t/{number}") for number in range(2)]
    assert [each and each.data for each in owners_of] == [b"readers_c1-0", b"readers_c1-1"]
    await produce(world, "t", (0, b"a"), (0, b"b"), (1, b"c"))
    await expect(lambda: len(reader.read) == 3)
    await reader.consumer.commit_offsets()
    offsets = [await tree.get(f"/consumers/{GROUP}/offsets/t/{number}") for number in range(2)]
    assert [each and each.data for each in offsets] == [b"2", b"1"]
    await reader.stop()
    assert await tree.children(f"/consumers/{GROUP}/ids") == []
    assert await tree.children(f"/consumers/{GROUP}/owners/t") == []
    assert await tree.children(f"/consumers/{GROUP}/offsets/t") == ["0", "1"], "offsets outlive the consumer"


@played
async def test_each_thread_reads_its_own_partitions(world: World) -> None:
    await world.create_topic("t", 4)
    reader = await Reader(world, "c", {"t": 2}).start()
    assert [stream.partitions for stream in reader.streams] == [
        {TopicPartition("t", 0), TopicPartition("t", 1)},
        {TopicPartition("t", 2), TopicPartition("t", 3)},
    ]
    await reader.stop()


@played
async def test_a_white_list_finds_topics_that_are_created_later(world: World) -> None:
    await world.create_topic("flights-a")
    await world.create_topic("other")
    reader = await Reader(world, "c", TopicFilter(expression="flights-.*, trains")).start()
    assert set(reader.consumer.owned()) == {("flights-a", 0)}
    await world.create_topic("trains")
    await expect(lambda: set(reader.consumer.owned()) == {("flights-a", 0), ("trains", 0)})
    await produce(world, "trains", (0, b"x"))
    await expect(lambda: reader.read == [b"x"])
    await reader.stop()


@played
async def test_a_black_list_leaves_out_what_it_names_and_internal_topics(world: World) -> None:
    for topic in ("a", "b", "__heartbeats", "__consumer_offsets"):
        await world.create_topic(topic)
    reader = await Reader(world, "c", TopicFilter(expression="b", is_white_list=False)).start()
    assert set(reader.consumer.owned()) == {("a", 0), ("__heartbeats", 0)}
    await reader.stop()


@played
async def test_members_with_topics_and_with_filters_share_a_group(world: World) -> None:
    await world.create_topic("a", 2)
    readers = [
        await Reader(world, "c1", TopicFilter(expression="a|b")).start(),
        await Reader(world, "c2", {"a": 1}).start(),
    ]
    await expect(lambda: owners(*readers) == [{0}, {1}])
    for reader in readers:
        await reader.stop()


@played
async def test_added_partitions_are_given_to_members(world: World) -> None:
    await world.create_topic("t", 1)
    readers = [await Reader(world, f"c{number}", {"t": 1}).start() for number in range(2)]
    await expect(lambda: owners(*readers) == [{0}, set()])
    async with world.admin() as admin:
        await admin.create_partitions("t", 2)
    await expect(lambda: owners(*readers) == [{0}, {1}])
    for reader in readers:
        await reader.stop()


@played
async def test_one_change_of_membership_makes_every_member_rebalance(world: World) -> None:
    """The herd effect, the first known fault of generation 1."""
    await world.create_topic("t", 8)
    readers = [await Reader(world, f"c{number}", {"t": 1}).start() for number in range(8)]
    await expect(lambda: all(len(reader.owned) == 1 for reader in readers))
    before = [reader.consumer.rebalances for reader in readers]
    await readers.pop().stop()
    await expect(lambda: sum(len(reader.owned) for reader in readers) == 8)
    assert all(reader.consumer.rebalances > count for reader, count in zip(readers, before, strict=False))
    for reader in readers:
        await reader.stop()


@played
async def test_a_claim_of_a_dead_consumer_fails_every_attempt(world: World) -> None:
    """Consumers do not know each other's outcome: a rebalance fails for good while one's session lives on."""
    await world.create_topic("t", 1)
    await create_persistent(
        MemoryStore(world.tree), [f"/consumers/{GROUP}{rest}" for rest in ("", "/owners", "/owners/t")]
    )
    await MemoryStore(world.tree).create(f"/consumers/{GROUP}/owners/t/0", b"dead-0", ephemeral=True)
    reader = Reader(world, "c", {"t": 1}, rebalance_max_retries=2, rebalance_backoff_ms=10)
    with pytest.raises(RebalanceFailedError, match=r"2 retries .* another consumer has claimed"):
        await reader.start()
    assert reader.consumer.state is State.DOWN
    await reader.stop()


@played
async def test_roundrobin_of_unequal_streams_is_refused(world: World) -> None:
    await world.create_topic("a")
    await world.create_topic("b")
    reader = Reader(
        world, "c", {"a": 1, "b": 2}, partition_assignment_strategy="zookeeper-roundrobin", rebalance_backoff_ms=1
    )
    with pytest.raises(
        RebalanceFailedError,
        match=r"streams: \[readers_c-0, readers_c-1\]\nTopic a .* streams: \[readers_c-0\]",
    ):
        await reader.start()
    await reader.stop()


def test_a_filter_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'\(' is not a regular expression"):
        TopicFilter(expression="(")


@played
async def test_a_second_consumer_with_the_same_id_is_refused(world: World) -> None:
    await world.create_topic("t")
    first = await Reader(world, "c", {"t": 1}).start()
    second = Reader(world, "c", {"t": 1}, rebalance_backoff_ms=1)
    with pytest.raises(RebalanceFailedError, match="has another consumer readers_c: choose another"):
        await second.start()
    await second.stop()
    assert first.owned == {0}
    await first.stop()
