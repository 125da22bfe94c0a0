"""M4, M8. Sessions that expire, trees that vanish, and where offsets are kept."""

import pytest

from odradek.clients.zookeeper_consumer import ConsumerTimeoutError, ZookeeperConsumer
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.clients.zookeeper_consumer.offset_storage import SessionOverError, ZookeeperOffsets
from odradek.model import ConfigurationError, TopicPartition
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, produce
from tests.world.scenes import played


async def offset_in_tree(world: World, partition: int = 0) -> int | None:
    node = await MemoryStore(world.tree).get(f"/consumers/{GROUP}/offsets/t/{partition}")
    return None if node is None else int(node.data)


@played
async def test_a_consumer_goes_on_where_the_last_one_stopped(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"), (0, b"b"))
    first = await Reader(world, "c1", {"t": 1}).start()
    await expect(lambda: first.read == [b"a", b"b"])
    await first.stop()
    await produce(world, "t", (0, b"c"))
    second = await Reader(world, "c2", {"t": 1}).start()
    await expect(lambda: second.read == [b"c"])
    await second.stop()


@played
async def test_a_record_that_is_being_processed_is_not_committed(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"), (0, b"b"))
    reader = Reader(world, "c", {"t": 1})
    await reader.consumer.start()
    (stream,) = (await reader.consumer.create_message_streams({"t": 1}))["t"]
    assert (await anext(stream)).value == b"a"
    assert (await anext(stream)).value == b"b"
    await world.pass_time(3)
    assert await offset_in_tree(world) == 1
    await reader.consumer.commit_offsets()
    assert await offset_in_tree(world) == 2, "an explicit commit has what was returned"
    await reader.stop()


@played
async def test_partitions_of_an_expired_session_go_to_another_member(world: World) -> None:
    await world.create_topic("t")
    first = await Reader(world, "c1", {"t": 1}).start()
    second = await Reader(world, "c2", {"t": 1}).start()
    await expect(lambda: first.owned == {0})
    first.store.disconnect()  # type: ignore[attr-defined]
    await expect(lambda: second.owned == {0})
    await first.fall_silent()
    await second.stop()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@played
async def test_commits_of_an_expired_session_do_not_overwrite_its_successors(world: World, storage: str) -> None:
    await world.create_topic("t")
    kept = {"offsets_storage": storage, "dual_commit_enabled": False, "auto_commit_enable": False}
    await produce(world, "t", (0, b"a"), (0, b"b"), (0, b"c"))
    first = Reader(world, "c1", {"t": 1}, **kept)
    await first.consumer.start()
    (stream,) = (await first.consumer.create_message_streams({"t": 1}))["t"]
    assert (await anext(stream)).value == b"a"
    assert isinstance(first.store, MemoryStore)
    # The tree ends the session; the consumer, which does not hear of it, still reads.
    world.tree.end_session(first.store.session_id)
    second = await Reader(world, "c2", {"t": 1}, **kept).start()
    await expect(lambda: second.read == [b"a", b"b", b"c"])
    await second.consumer.commit_offsets()
    assert (await anext(stream)).value == b"b", "the split brain: both read the partition"
    if storage == "kafka":
        first.store.disconnect()
        await world.pass_time(60)
    with pytest.raises(SessionOverError):
        await first.consumer.commit_offsets()
    third = Reader(world, "c3", {"t": 1}, **kept)
    await second.stop()
    await third.start()
    await produce(world, "t", (0, b"d"))
    await expect(lambda: third.read == [b"d"])
    await third.stop()


@played
async def test_a_commit_for_claims_of_an_earlier_session_is_refused_after_the_consumer_registered_again(
    world: World,
) -> None:
    store = MemoryStore(world.tree)
    claimed_in = store.session_id
    world.tree.expire(store.session_id)
    await create_persistent(store, [f"/consumers/{GROUP}", f"/consumers/{GROUP}/ids"])
    await store.create(f"/consumers/{GROUP}/ids/c", ephemeral=True)
    offsets = ZookeeperOffsets(store, GROUP, "c")
    with pytest.raises(SessionOverError):
        await offsets.commit({TopicPartition("t", 0): 7}, session_id=claimed_in)
    assert await offset_in_tree(world) is None
    await offsets.commit({TopicPartition("t", 0): 7}, session_id=store.session_id)
    assert await offset_in_tree(world) == 7


@played
async def test_a_consumer_whose_session_expired_joins_again(world: World) -> None:
    await world.create_topic("t", 2)
    readers = [await Reader(world, f"c{number}", {"t": 1}).start() for number in range(2)]
    await expect(lambda: [reader.owned for reader in readers] == [{0}, {1}])
    store = readers[0].store
    assert isinstance(store, MemoryStore)
    world.tree.expire(store.session_id)
    before = readers[0].consumer.rebalances
    await expect(lambda: readers[0].consumer.rebalances > before)
    await expect(lambda: [reader.owned for reader in readers] == [{0}, {1}])
    await produce(world, "t", (0, b"a"), (1, b"b"))
    await expect(lambda: [reader.read for reader in readers] == [[b"a"], [b"b"]])
    for reader in readers:
        await reader.stop()


@played
async def test_a_tree_that_vanishes_for_a_while_loses_no_record(world: World) -> None:
    await world.create_topic("t", 2)
    first = await Reader(world, "c1", {"t": 1}).start()
    store = first.store
    assert isinstance(store, MemoryStore)
    store.disconnect()
    await produce(world, "t", (0, b"a"), (1, b"b"))
    await expect(lambda: sorted(first.read) == [b"a", b"b"])
    await world.pass_time(60)
    store.reconnect()
    await expect(lambda: first.owned == {0, 1})
    await produce(world, "t", (0, b"c"))
    await expect(lambda: b"c" in first.read)
    await first.stop()


@played
async def test_offsets_in_kafka_are_those_of_a_later_generation(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"), (0, b"b"))
    first = await Reader(world, "c1", {"t": 1}, offsets_storage="kafka").start()
    await expect(lambda: first.read == [b"a", b"b"])
    await first.stop()
    assert await offset_in_tree(world) == 2, "the tree has them, too (dual.commit.enabled)"
    async with world.consumer("modern", "t", group_id=GROUP) as modern:
        await produce(world, "t", (0, b"c"))
        assert [record.value for record in await modern.poll()] == [b"c"]
        await modern.commit()
    again = await Reader(world, "c2", {"t": 1}, offsets_storage="kafka").start()
    await produce(world, "t", (0, b"d"))
    await expect(lambda: again.read == [b"d"])
    await again.stop()


@played
async def test_dual_offsets_are_read_from_the_later_one(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", *((0, value) for value in (b"a", b"b", b"c")))
    old = await Reader(world, "c1", {"t": 1}).start()
    await expect(lambda: len(old.read) == 3)
    await old.stop()
    await produce(world, "t", (0, b"d"))
    new = await Reader(world, "c2", {"t": 1}, offsets_storage="kafka").start()
    await expect(lambda: new.read == [b"d"])
    await new.stop()


@played
async def test_a_stream_without_records_raises_after_its_timeout(world: World) -> None:
    await world.create_topic("t")
    consumer = ZookeeperConsumer(
        store=MemoryStore(world.tree), runtime=world.simulation.runtime("c"), consumer_timeout_ms=500
    )
    async with consumer:
        (stream,) = (await consumer.create_message_streams({"t": 1}))["t"]
        with pytest.raises(ConsumerTimeoutError, match="no record within 500 ms"):
            await anext(stream)
        assert consumer.consumer_id.startswith("default_c-")
        with pytest.raises(ConfigurationError, match="creates its streams once"):
            await consumer.create_message_streams({"t": 1})
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@played
async def test_a_group_without_brokers_waits_for_one(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"))
    await world.stop()
    reader = await Reader(world, "c", {"t": 1}).start()
    assert reader.owned == set()
    await world.start()
    await expect(lambda: reader.read == [b"a"])
    await reader.stop()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": "b:9092"}, "finds the brokers in the tree"),
        ({"group_id": "a/b"}, "it can't be 'a/b'"),
        ({"auto_ofset_reset": "smallest"}, "auto_offset_reset"),
        ({"auto_offset_reset": "middle"}, "smallest"),
        ({"offsets_storage": "redis"}, "zookeeper"),
        ({"consumer_timeout_ms": 0}, "1 ms or more, or -1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ZookeeperConsumer(**settings)


@played
async def test_metrics_are_those_of_all_streams_and_of_the_rebalances(world: World) -> None:
    await world.create_topic("t", 2)
    reader = Reader(world, "c", {"t": 2})
    assert reader.consumer.metrics() == {"rebalance_total": 0, "assigned_partitions": 0}
    await reader.start()
    await produce(world, "t", (0, b"a"), (1, b"b"), (1, b"c"))
    await expect(lambda: len(reader.read) == 3)
    await reader.consumer.commit_offsets()
    found = reader.consumer.metrics()
    assert (found["records_consumed_total"], found["records_lag_max"], found["t-1.records_lag"]) == (3, 0, 0)
    assert (found["rebalance_total"], found["assigned_partitions"], found["commit_total"]) == (1, 2, 1)
    assert found["commit_latency_max"] >= found["commit_latency_avg"] >= 0
    await reader.stop()
