"""M4, M9. Nodes that no consumer of ours wrote: one that is broken, or unusual, stops nothing but what it describes."""

import pytest

from odradek.clients.zookeeper_consumer import RebalanceFailedError, TopicFilter
from odradek.clients.zookeeper_consumer.group_tree import GroupTree, create_persistent
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.clients.zookeeper_consumer.machine.registration import MOST_THREADS, ThreadCounts
from odradek.metadata import paths
from odradek.metadata.nodes import ConsumerNode
from odradek.model import ConfigurationError
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, owners, produce
from tests.world.scenes import played

ROUND_ROBIN = {"partition_assignment_strategy": "zookeeper-roundrobin", "rebalance_backoff_ms": 1}


async def plant(world: World, path: str, data: bytes, *, ephemeral: bool = False) -> MemoryStore:
    """Write a node and its parents; return the session that owns it."""
    store = MemoryStore(world.tree)
    above: list[str] = []
    while (path_above := paths.parent(above[0] if above else path)) != "/":
        above.insert(0, path_above)
    await create_persistent(store, above)
    if await store.get(path) is None:
        await store.create(path, data, ephemeral=ephemeral)
    else:
        await store.set(path, data)
    return store


def registration(subscription: str) -> bytes:
    return f'{{"version":1,"subscription":{subscription},"pattern":"static","timestamp":"1"}}'.encode()


@played
async def test_a_registration_with_a_name_that_no_topic_has_keeps_its_other_topics(world: World) -> None:
    await world.create_topic("t", 2)
    other = await plant(world, f"/consumers/{GROUP}/ids/x", registration('{"t":1,"a/b":1}'), ephemeral=True)
    reader = await Reader(world, "c", {"t": 1}).start()
    assert reader.owned == {0}, "the other one has partition 1"
    await other.close()
    await expect(lambda: reader.owned == {0, 1})
    await reader.stop()


@pytest.mark.parametrize("data", [registration('{"a/b":1}'), registration(f'{{"t":{MOST_THREADS + 1}}}'), b"oops"])
@played
async def test_a_registration_that_cannot_be_used_is_ignored(world: World, data: bytes) -> None:
    await world.create_topic("t", 2)
    await plant(world, f"/consumers/{GROUP}/ids/x", data, ephemeral=True)
    reader = await Reader(world, "c", {"t": 1}).start()
    assert reader.owned == {0, 1}
    await reader.stop()


@played
async def test_a_broken_topic_stops_no_other_topic(world: World) -> None:
    await world.create_topic("good")
    reader = await Reader(world, "c", TopicFilter(expression=".*")).start()
    before = reader.consumer.rebalances
    await plant(world, "/brokers/topics/bad", b"not json")
    await expect(lambda: reader.consumer.rebalances > before and reader.consumer.state is State.OWNING)
    assert set(reader.consumer.owned()) == {("good", 0)}
    await reader.stop()


@played
async def test_a_broken_broker_gets_no_requests(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"))
    await plant(world, "/brokers/ids/99", b"{}")
    reader = await Reader(world, "c", {"t": 1}).start()
    await expect(lambda: reader.read == [b"a"])
    await reader.stop()


@played
async def test_a_rebalance_fails_clearly_while_every_broker_is_broken(world: World) -> None:
    await world.create_topic("t")
    await world.stop()
    await plant(world, "/brokers/ids/99", b"{}")
    with pytest.raises(RebalanceFailedError, match="no broker is registered in /brokers/ids"):
        await Reader(world, "c", {"t": 1}, rebalance_backoff_ms=1).start()


@pytest.mark.parametrize("data", [b"", b"-1"])
@played
async def test_an_offset_that_is_none_is_as_good_as_no_offset(world: World, data: bytes) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"))
    await plant(world, f"/consumers/{GROUP}/offsets/t/0", data)
    reader = await Reader(world, "c", {"t": 1}).start()
    await expect(lambda: reader.read == [b"a"])
    await reader.stop()


@pytest.mark.parametrize("strategy", ["zookeeper-range", "ceiling-range", "zookeeper-roundrobin"])
@played
async def test_partitions_are_those_that_the_topic_s_node_names(world: World, strategy: str) -> None:
    await world.create_topic("t")
    await plant(world, "/brokers/topics/x", b'{"version":1,"partitions":{"0":[0],"5":[0],"12":[0]}}')
    readers = [Reader(world, f"c{n}", {"x": 1}, partition_assignment_strategy=strategy) for n in range(2)]
    for reader in readers:
        await reader.start()
    await expect(lambda: sorted(map(len, owners(*readers))) == [1, 2])
    assert set.union(*owners(*readers)) == {0, 5, 12}
    for reader in readers:
        await reader.stop()


@played
async def test_roundrobin_is_refused_to_a_consumer_that_lacks_a_topic_of_the_others(world: World) -> None:
    """Without it the two would compute different assignments."""
    await world.create_topic("a", 4)
    await world.create_topic("b", 4)
    first = await Reader(world, "c1", {"a": 1, "b": 1}, **ROUND_ROBIN).start()
    second = Reader(world, "c2", {"a": 1}, **ROUND_ROBIN)
    with pytest.raises(
        RebalanceFailedError, match=r"Topic b has the following available consumer streams: \[readers_c1-0\]\nTopic a"
    ):
        await second.start()
    await expect(lambda: len(first.consumer.owned()) == 8)
    await first.stop()


@played
async def test_a_consumer_that_leaves_late_does_not_delete_its_successor_s_registration(world: World) -> None:
    def tree(store: MemoryStore) -> GroupTree:
        counts = ThreadCounts(topics={"t": 1})
        return GroupTree(store, GROUP, "c", counts, lambda: None, exclude_internal=True, security_protocol="PLAINTEXT")

    old_store, new_store = MemoryStore(world.tree), MemoryStore(world.tree)
    old, new = tree(old_store), tree(new_store)
    await old.register(0)
    world.tree.expire(old_store.session_id)
    await new.register(1)
    await old.unregister()
    node = await new_store.get(f"/consumers/{GROUP}/ids/c")
    assert node is not None
    assert node.owner == new_store.session_id
    await new.unregister()
    assert await new_store.get(f"/consumers/{GROUP}/ids/c") is None


def test_a_registration_without_a_usable_topic_says_so() -> None:
    node = ConsumerNode(subscription={"a/b": 1}, pattern="static", timestamp_ms=0)
    with pytest.raises(ConfigurationError, match="needs a topic"):
        ThreadCounts.of(node)
