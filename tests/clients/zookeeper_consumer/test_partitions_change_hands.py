"""M4, M8. Partitions go from one consumer to the next: no record is skipped, no offset goes back, no claim stays."""

import asyncio
from collections.abc import Iterable

import pytest

from odradek.clients import Producer
from odradek.clients.zookeeper_consumer import KafkaStream, RebalanceFailedError, TopicFilter
from odradek.clients.zookeeper_consumer.group_tree import GroupTree, create_persistent
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.clients.zookeeper_consumer.offset_storage import SessionOverError
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import Node, Operation, Result, SessionExpired
from odradek.model import UnavailableError
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, play, produce
from tests.world.scenes import in_world, played, played_by

CLAIM = f"/consumers/{GROUP}/owners/t/0"


class HeldStore(MemoryStore):
    """A store whose reads of offsets wait while `may_read` is clear."""

    def __init__(self, world: World) -> None:
        super().__init__(world.tree)
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        if any("/offsets/" in path for path in wanted):
            await self.may_read.wait()
        return await super().get_many(wanted)


async def data(world: World, path: str) -> bytes | None:
    node = await MemoryStore(world.tree).get(path)
    return None if node is None else node.data


@played
async def test_records_that_are_written_between_two_consumers_of_an_idle_partition_are_read(world: World) -> None:
    """`auto.offset.reset` says where the first consumer starts; that offset is committed before a record is read."""
    await world.create_topic("t")
    await produce(world, "t", (0, b"old"))
    first = await Reader(world, "c1", {"t": 1}, auto_offset_reset="largest").start()
    await first.stop()
    await produce(world, "t", (0, b"a"))
    second = await Reader(world, "c2", {"t": 1}, auto_offset_reset="largest").start()
    await produce(world, "t", (0, b"b"))
    await expect(lambda: b"b" in second.read)
    assert second.read == [b"a", b"b"]
    await second.stop()


@played
async def test_largest_is_the_end_when_the_streams_are_returned(world: World) -> None:
    await world.create_topic("t")
    reader = Reader(world, "c", {"t": 1}, auto_offset_reset="largest")
    await reader.consumer.start()
    (stream,) = (await reader.consumer.create_message_streams({"t": 1}))["t"]
    await produce(world, "t", (0, b"a"))
    assert (await anext(stream)).value == b"a"
    await reader.stop()


@in_world(brokers=2, started=False)
async def test_a_partition_without_a_leader_does_not_keep_others_from_being_read(world: World) -> None:
    """Neither has an offset; the broker of one is down."""
    for number in range(2):
        await world.start(number)  # one after another: broker 0 is the controller
    for name, broker in (("a", 1), ("b", 0)):
        (created,) = await world.broker.create_topics([NewTopic(name=name, assignment={0: (broker,)})])
        assert created.error is None
    await produce(world, "a", (0, b"x"))
    await world.stop(1)
    reader = await Reader(world, "c", TopicFilter(expression="a|b")).start()
    await produce(world, "b", (0, b"y"))
    await expect(lambda: reader.read == [b"y"])
    await world.start(1)
    await expect(lambda: reader.read == [b"y", b"x"])
    await reader.stop()


@played
async def test_calls_to_brokers_out_of_reach_end_as_the_settings_say(world: World) -> None:
    await world.create_topic("t")
    world.simulation.network.partition(["c"], ["broker"])
    reader = Reader(world, "c", {"t": 1}, rebalance_max_retries=1, default_api_timeout_ms=2_000)
    before = world.now_s
    with pytest.raises(RebalanceFailedError):
        await reader.start()
    assert world.now_s - before < 15, "default.api.timeout.ms would be 60 s"
    await reader.stop()
    world.simulation.network.heal()


@played
async def test_a_commit_under_way_in_a_rebalance_does_not_set_back_the_next_owner(world: World) -> None:
    await world.create_topic("t", 2)
    await produce(world, "t", *((1, b"%d" % number) for number in range(6)))
    store, by_hand = HeldStore(world), {"auto_commit_enable": False}
    first = Reader(world, "c1", {"t": 1}, store=store, **by_hand)
    await first.consumer.start()
    (stream,) = (await first.consumer.create_message_streams({"t": 1}))["t"]
    await anext(stream)
    store.may_read.clear()
    committing = asyncio.create_task(first.consumer.commit_offsets())
    await world.pass_time(0.1)
    second = await Reader(world, "c2", {"t": 1}, **by_hand).start()
    await expect(lambda: second.owned == {1} and len(second.read) == 6)
    await second.consumer.commit_offsets()
    store.may_read.set()
    with pytest.raises(UnavailableError, match=r"within 6,000 ms \(zookeeper\.session\.timeout\.ms\)"):
        await committing
    assert await data(world, f"/consumers/{GROUP}/offsets/t/1") == b"6"
    await second.stop()
    await first.stop()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@played_by(play, limit_s=5_000)
async def test_a_consumer_reads_again_after_an_outage_that_outlasts_all_attempts(world: World, *, storage: str) -> None:
    """Meanwhile it holds no claim, so that a consumer that reaches the brokers can take its partitions."""
    await world.create_topic("t")
    first = await Reader(world, "c1", {"t": 1}, offsets_storage=storage, rebalance_backoff_ms=500).start()
    second = await Reader(world, "c2", {"t": 1}, offsets_storage=storage, rebalance_backoff_ms=500).start()
    world.simulation.network.partition(["c2"], ["broker"])
    await first.stop()
    seen: dict[State, set[bytes | None]] = {}
    for _ in range(3_000):
        await world.pass_time(0.2)
        seen.setdefault(second.consumer.state, set()).add(await data(world, CLAIM))
    assert seen[State.FAILED] == {None}
    world.simulation.network.heal()
    await produce(world, "t", (0, b"a"))
    await expect(lambda: second.read == [b"a"])
    assert second.owned == {0}
    await second.stop()


@played
async def test_a_stream_stops_reading_as_soon_as_the_session_is_lost(world: World) -> None:
    """One stream has started, the other one's start takes long."""
    await world.create_topic("t", 2)
    first = await Reader(world, "a", {"t": 1}).start()
    second = Reader(world, "b", {"t": 2})
    starting = asyncio.create_task(second.start())
    await expect(lambda: second.consumer.state is State.OWNING)
    await starting
    streams, slow = second.streams, asyncio.Event()

    async def start_late(offsets: object) -> None:
        await slow.wait()

    streams[1].start_fetching = start_late  # type: ignore[assignment, method-assign]
    await first.stop()
    await expect(lambda: bool(streams[0].partitions))
    assert isinstance(second.store, MemoryStore)
    blocker = await Reader(world, "a", {"t": 2}).start()
    world.tree.expire(second.store.session_id)
    await asyncio.sleep(0)
    assert streams[0].partitions == frozenset()
    await blocker.stop()
    await second.stop()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@played
async def test_closing_does_not_wait_for_brokers_out_of_reach(world: World, storage: str) -> None:
    await world.create_topic("t")
    first = await Reader(world, "a", {"t": 1}, offsets_storage=storage).start()
    second = await Reader(world, "b", {"t": 1}, offsets_storage=storage).start()
    world.simulation.network.partition(["b"], ["broker"])
    await first.stop()
    await world.pass_time(1)
    assert second.consumer.state is State.REBALANCING
    before = world.now_s
    await second.stop()
    assert world.now_s - before < 1
    assert await data(world, CLAIM) is None
    world.simulation.network.heal()


@played
async def test_brokers_that_return_at_other_addresses_are_found(world: World) -> None:
    await world.create_topic("t")
    reader = await Reader(world, "c", {"t": 1}, offsets_storage="kafka").start()
    await produce(world, "t", (0, b"a"))
    await expect(lambda: reader.read == [b"a"])
    await reader.consumer.commit_offsets()
    await world.stop()
    address = "PLAINTEXT://broker:9999"
    await world.start(0, listeners=address, advertised_listeners=address)
    async with Producer(bootstrap_servers="broker:9999", runtime=world.simulation.runtime("writer")) as producer:
        await producer.send("t", b"b", partition=0)
        await producer.flush()
    await expect(lambda: reader.read == [b"a", b"b"])
    await reader.consumer.commit_offsets()
    await reader.stop()


@played
async def test_a_negative_offset_in_the_tree_is_none(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"))
    store, path = MemoryStore(world.tree), f"/consumers/{GROUP}/offsets/t/0"
    parents = [path.rsplit("/", depth)[0] for depth in (3, 2, 1)]
    await create_persistent(store, [*parents, path])
    await store.set(path, b"-1")
    reader = await Reader(world, "c", {"t": 1}).start()
    await expect(lambda: reader.read == [b"a"])
    await reader.stop()


@played
async def test_a_consumer_whose_rebalance_crashes_leaves_its_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create_topic("t")
    first = await Reader(world, "c1", {"t": 1}).start()
    second = await Reader(world, "c2", {"t": 1}).start()

    async def crash(stream: KafkaStream, offsets: object) -> None:
        raise RuntimeError("a fault of the program")

    with monkeypatch.context() as patch:
        patch.setattr(first.streams[0], "start_fetching", lambda offsets: crash(first.streams[0], offsets))
        third = await Reader(world, "c3", {"t": 1}).start()
        await expect(lambda: first.consumer.state is State.CLOSED)
    await expect(lambda: second.owned == {0})
    assert await MemoryStore(world.tree).children(f"/consumers/{GROUP}/ids") == ["readers_c2", "readers_c3"]
    with pytest.raises(RuntimeError, match="a fault of the program"):
        await anext(first.streams[0])
    for reader in (first, second, third):
        await reader.stop()


@played
async def test_a_cancelled_close_leaves_nothing_running(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create_topic("t")
    reader = await Reader(world, "c", {"t": 1}).start()

    async def never(tree: GroupTree, claims: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(GroupTree, "release", never)
        closing = asyncio.create_task(reader.consumer.close())
        await world.pass_time(1)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
    running = {task.get_name() for task in asyncio.all_tasks()}
    assert not running & {"rebalances of c", "commits of c"}
    with pytest.raises(StopAsyncIteration):
        await anext(reader.streams[0])
    assert await data(world, CLAIM) is None, "the session is over"
    await reader.stop()


@played
async def test_a_commit_during_which_the_session_expires_says_so(world: World) -> None:
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"))
    reader = await Reader(world, "c", {"t": 1}, auto_commit_enable=False).start()
    await expect(lambda: reader.read == [b"a"])

    async def multi(operations: list[Operation]) -> list[Result]:
        raise SessionExpired

    reader.store.multi = multi  # type: ignore[assignment, method-assign]
    with pytest.raises(SessionOverError):
        await reader.consumer.commit_offsets()
    del reader.store.multi
    await reader.stop()
