"""`SimpleConsumer`: reading by offset, without a group, through everything that happens to leaders (M5, SPEC 5)."""

import asyncio
import errno
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import crc32c
import pytest

from odradek.clients import CorruptRecordsError, SimpleConsumer
from odradek.clients.admin.reassignments import ElectionType
from odradek.clients.leader_fetch import OffsetOutOfRangeError, TopicRecreatedError
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.virtual.simulation import InlineWorker
from odradek.simulation.world import World, until
from odradek.testing import Simulation
from tests.world.scenes import in_simulation, played_by

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Scene = Callable[[SimpleConsumer, World], Awaitable[None]]


def play(seed: int, scene: Scene, *, brokers: int = 1, count: int = 0, **settings: Any) -> None:
    """Write `count` records into t-0, one in a batch, with the topic replicated to all brokers, and play `scene`."""
    world = World(seed, brokers=brokers)

    async def scenario(_: World) -> None:
        await until(lambda: all(len(broker.image.brokers) == brokers for broker in world.running.values()))
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=2, replication_factor=brokers)
        await write(world, *range(count))
        async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader"), **settings) as consumer:
            await scene(consumer, world)

    world.play(scenario)


async def write(world: World, *numbers: int, partition: int = 0) -> None:
    async with world.producer("writer") as producer:
        for number in numbers:
            await producer.send("t", b"%d" % number, partition=partition, timestamp_ms=EPOCH_MS + number)
            await producer.flush()


async def read_all(
    consumer: SimpleConsumer, end: int, between: Callable[[int], Awaitable[None]] | None = None
) -> list[tuple[int, bytes | None]]:
    """Fetch a batch at a time up to `end`, calling `between` with the offset before each fetch."""
    found: list[tuple[int, bytes | None]] = []
    offset = 0
    while offset < end:
        if between is not None:
            await between(offset)
        fetched = await consumer.fetch(T0, offset, max_bytes=1)
        found += [(record.offset, record.value) for record in fetched.records]
        offset = fetched.next_offset
    return found


def numbered(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


@played_by(play, count=20)
async def test_a_message_is_read_many_times(consumer: SimpleConsumer, world: World) -> None:
    """M5: it reads a message many times; the consumer keeps no position."""
    for _again in range(3):
        fetched = await consumer.fetch(("t", 0), 7, max_bytes=1)
        (record,) = fetched.records
        assert (record.offset, record.value, record.timestamp) == (7, b"7", EPOCH_MS + 7)
        assert (fetched.next_offset, fetched.high_watermark, fetched.log_start_offset) == (8, 20, 0)
        assert fetched.leader_epoch == record.leader_epoch == 0
    whole = await consumer.fetch(T0, 5)
    assert [each.offset for each in whole.records] == list(range(5, 20))
    assert whole.next_offset == 20


@played_by(play, count=5, brokers=2)
async def test_a_subset_of_partitions_is_fetched_with_a_request_to_each_leader(
    consumer: SimpleConsumer, world: World
) -> None:
    """M5: it reads a subset of partitions, each from an offset of its own."""
    await write(world, 50, 51, partition=1)
    fetched = await consumer.fetch_many({T0: 3, T1: 1})
    assert {key: [each.value for each in one.records] for key, one in fetched.items()} == {
        T0: [b"3", b"4"],
        T1: [b"51"],
    }
    assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert await consumer.end_offsets([T0, ("t", 1)]) == {T0: 5, T1: 2}
    found = await consumer.offsets_for_times({T0: EPOCH_MS + 2, T1: EPOCH_MS + 90})
    assert found[T1] is None
    assert found[T0] is not None
    assert found[T0].offset == 2
    assert await consumer.partitions_for_topic("t") == (0, 1)


@played_by(play, count=3)
async def test_at_the_end_of_the_log_a_fetch_waits_for_a_record_or_returns_none(
    consumer: SimpleConsumer, world: World
) -> None:
    """M5: an empty result has the same offset to go on with."""
    before = world.now_s
    fetched = await consumer.fetch(T0, 3, max_wait_ms=200)
    assert (fetched.records, fetched.next_offset, fetched.leader_epoch) == ((), 3, -1)
    assert 0.2 <= world.now_s - before < 0.5
    waiting = asyncio.ensure_future(consumer.fetch(T0, 3, max_wait_ms=20_000))
    await asyncio.sleep(1)
    await write(world, 3)
    assert [each.value for each in (await waiting).records] == [b"3"]
    assert world.now_s - before < 10


@played_by(play, count=12, brokers=3)
async def test_a_leader_may_die_before_any_fetch(consumer: SimpleConsumer, world: World) -> None:
    """M5: it notices a leader change and follows it: each broker dies in turn, and no record is missed or repeated."""

    async def change_leader(offset: int) -> None:
        leader = (await consumer.find_leader(T0)).leader.node_id
        await world.kill(leader)
        others = [number for number in range(3) if number not in world.running and number != leader]
        for number in others:
            await world.start(number)
        if offset % 2:
            # The killed broker is back, and has to catch up, before the fetch.
            await world.start(leader)
            await until(lambda: len(isr(world)) == 3)
        await until(lambda: len(isr(world)) >= 2)

    assert await read_all(consumer, 12, change_leader) == numbered(12)


def isr(world: World) -> tuple[int, ...]:
    """The in-sync replicas of t-0 that run, as the newest image of a running broker has them."""
    images = [broker.image.topics["t"].partitions[0] for broker in world.running.values()]
    newest = max(images, key=lambda image: (image.leader_epoch, len(image.isr)))
    return tuple(each for each in newest.isr if each in world.running) if newest.leader in world.running else ()


@played_by(play, count=10, brokers=3)
async def test_a_leader_may_move_before_any_fetch(consumer: SimpleConsumer, world: World) -> None:
    """M5: preferred elections move the leader away and back while all brokers live."""
    async with world.admin() as admin:

        async def move(offset: int) -> None:
            found = await consumer.find_leader(T0)
            order = [*found.replicas[1:], found.replicas[0]]
            await admin.alter_partition_reassignments({T0: order})
            await admin.elect_leaders(ElectionType.PREFERRED, [T0])
            del offset

        assert await read_all(consumer, 10, move) == numbered(10)
        assert (await consumer.find_leader(T0)).leader_epoch >= 5


@played_by(play, count=3)
async def test_a_fetch_that_waits_survives_a_restart_of_the_only_broker(consumer: SimpleConsumer, world: World) -> None:
    """M5: it finds a live broker again."""
    waiting = asyncio.ensure_future(consumer.fetch(T0, 3, max_wait_ms=30_000))
    await asyncio.sleep(1)
    await world.restart()
    await write(world, 3)
    assert [each.value for each in (await waiting).records] == [b"3"]


@pytest.mark.parametrize("notices", ["from the fetch", "from metadata"])
@played_by(play, count=3)
async def test_a_topic_that_was_created_again_is_an_error_and_never_other_records(
    consumer: SimpleConsumer, world: World, *, notices: str
) -> None:
    """M5: the offsets that the caller keeps belong to the topic with the id that was fetched first."""
    fetched = await consumer.fetch(T0, 1)
    async with world.admin() as admin:
        await admin.delete_topics(["t"])
        await admin.create_topic("t", partitions=2)
    await write(world, 100, 101, 102)
    if notices == "from metadata":
        await consumer.find_leader(T0)
    for call in (consumer.fetch(T0, 1), consumer.fetch_many({T0: 1, T1: 0}), consumer.end_offsets([T0])):
        with pytest.raises(TopicRecreatedError, match="'t' was deleted and created again: its id was"):
            await call
    with pytest.raises(TopicRecreatedError):
        async for _record in consumer.read(T0, 0, 3):
            pass
    async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("other")) as other:
        with pytest.raises(TopicRecreatedError):
            await other.fetch(T0, 1, topic_id=fetched.topic_id)
        assert [each.value for each in (await other.fetch(T0, 1)).records] == [b"101", b"102"]


@played_by(play, count=10)
async def test_an_offset_out_of_range_is_an_error_with_the_range(consumer: SimpleConsumer, world: World) -> None:
    """M5: the caller decides where to go on."""
    async with world.admin() as admin:
        await admin.delete_records({T0: 4})
    for offset in (3, 11):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset}; it starts at 4 and ends at 10") as caught:
            await consumer.fetch(T0, offset)
        assert (caught.value.beginning_offset, caught.value.end_offset) == (4, 10)
        assert caught.value.code is ErrorCode.offset_out_of_range
    for start in (0, 11):
        with pytest.raises(OffsetOutOfRangeError):
            async for _record in consumer.read(T0, start):
                pass
    assert (await consumer.fetch(T0, 4)).records[0].offset == 4


@played_by(play, count=20, max_partition_fetch_bytes=100)
async def test_a_range_is_iterated_up_to_its_end_and_may_be_left_early(consumer: SimpleConsumer, world: World) -> None:
    """M5: `read` takes exactly the offsets that it is told."""
    assert [record.offset async for record in consumer.read(T0, 3, 8)] == [3, 4, 5, 6, 7]
    assert [record.offset async for record in consumer.read(T0, 15)] == [15, 16, 17, 18, 19]
    assert [record.offset async for record in consumer.read(T0, 20)] == []
    async for record in consumer.read(T0, 0):
        assert record.offset == 0
        break


def test_ranges_and_fetches_are_arrow_tables(seed: int) -> None:
    """M5: the notebook's form of the same calls."""
    pytest.importorskip("pyarrow")

    async def scene(consumer: SimpleConsumer, _: World) -> None:
        fetched = await consumer.fetch_arrow(T0, 18, columns=["offset", "value"])
        assert fetched.records.to_pydict() == {"offset": [18, 19], "value": [b"18", b"19"]}
        assert fetched.next_offset == 20
        table = await consumer.read_arrow(T0, 5, 9)
        assert table.column("offset").to_pylist() == [5, 6, 7, 8]
        assert set(table.column_names) >= {"key", "value", "topic", "partition", "offset", "timestamp", "headers"}
        empty = await consumer.fetch_arrow(T0, 20, columns=["offset"], max_wait_ms=0)
        assert (empty.records.num_rows, empty.records.column_names) == (0, ["offset"])
        with pytest.raises(ValueError, match="columns are some of"):
            await consumer.fetch_arrow(T0, 5, columns=["offsets"])

    play(seed, scene, count=20, fetch_max_bytes=400)


@played_by(play, default_api_timeout_ms=3_000)
async def test_wrong_calls_are_refused_in_one_sentence(consumer: SimpleConsumer, world: World) -> None:
    for call in (consumer.fetch(("t", 9), 0), consumer.find_leader(("t", 9)), consumer.end_offsets([("t", 9)])):
        with pytest.raises(KafkaError, match="topic 't' has no partition 9, only 2 of them"):
            await call
    with pytest.raises(KafkaError, match="there is no topic 'u'"):
        await consumer.fetch(("u", 0), 0)
    with pytest.raises(ConfigurationError, match="did you mean fetch_max_wait_ms"):
        SimpleConsumer("b:9092", fetch_max_wait=5)
    idle = SimpleConsumer("b:9092", runtime=world.simulation.runtime("idle"))
    with pytest.raises(UnavailableError, match="not started"):
        await idle.fetch(T0, 0)
    await idle.close()


@played_by(play, count=3)
async def test_a_cancelled_fetch_leaves_nothing_behind(consumer: SimpleConsumer, world: World) -> None:
    """The simulation fails a test that leaves a task or a connection."""
    waiting = asyncio.ensure_future(consumer.fetch(T0, 3, max_wait_ms=30_000))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await write(world, 3)
    assert [each.value for each in (await consumer.fetch(T0, 3)).records] == [b"3"]


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    return bytes(encode_batch([(0, None, b"v", ())] * count, base_offset=base_offset, **options))


@in_simulation
async def test_batches_without_a_readable_record_are_passed_over(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    """M5: otherwise a caller would fetch an aborted transaction again and again."""
    transaction = {"producer_id": 9, "is_transactional": True}
    records = batch(0, 2, **transaction) + batch(2, 1, is_control=True, **transaction)
    fetched = FetchedPartition(
        0, high_watermark=3, last_stable_offset=3, aborted_transactions=[(9, 0)], records=records
    )
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    answers = [fetched, FetchedPartition(0, high_watermark=6, records=bytes(damaged))]
    broker.topics["t"] = {0: 0}
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, [answers.pop(0)])
    await broker.start()
    async with SimpleConsumer(
        "broker:9092", runtime=simulation.runtime("client"), isolation_level="read_committed"
    ) as consumer:
        found = await consumer.fetch(T0, 0)
        assert (found.records, found.next_offset, found.last_stable_offset) == ((), 3, 3)
        with pytest.raises(KafkaError, match=r"partition t-0, at offset 3: .*checksum") as caught:
            await consumer.fetch(T0, 3)
        assert caught.value.code is ErrorCode.corrupt_message


def unreadable(base_offset: int, count: int) -> bytes:
    """Return a batch with a valid checksum whose records are rubbish."""
    whole = bytearray(batch(base_offset, count))
    whole[61:] = b"\xff" * len(whole[61:])
    struct.pack_into(">I", whole, 17, crc32c.crc32c(bytes(whole[21:])))
    return bytes(whole)


@in_simulation
async def test_a_batch_of_rubbish_is_stepped_over(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    everything = {0: batch(0, 2), 2: unreadable(2, 3), 5: batch(5, 1)}

    def answer(request: Any) -> Any:
        offset = request.message.topics[0].partitions[0].fetch_offset
        records = b"".join(some for first, some in everything.items() if first >= offset)
        return answer_fetch(request, [FetchedPartition(0, high_watermark=6, records=records)])

    broker.topics["t"] = {0: 0}
    broker.answers[ApiKey.FETCH] = answer
    await broker.start()
    async with SimpleConsumer("broker:9092", runtime=simulation.runtime("client")) as consumer:
        found = await consumer.fetch(T0, 0)
        assert (len(found.records), found.next_offset) == (2, 2)
        with pytest.raises(CorruptRecordsError, match="seek to 5 to skip the batch") as caught:
            await consumer.fetch(T0, found.next_offset)
        assert (caught.value.offset, caught.value.next_offset) == (2, 5)
        assert [each.offset for each in (await consumer.fetch(T0, 5)).records] == [5]


@in_simulation
async def test_a_fetch_unpacks_no_more_batches_than_its_limit_in_memory(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    large = [(0, None, bytes(1 << 20), ())]
    records = b"".join(encode_batch(large, base_offset=offset, codec=Codec.ZSTD) for offset in range(9))
    broker.topics["t"] = {0: 0}
    answers = [FetchedPartition(0, high_watermark=9, records=records)]
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, answers)
    await broker.start()
    runtime = simulation.runtime("client")
    async with SimpleConsumer("broker:9092", runtime=runtime, fetch_max_bytes=3 << 20) as consumer:
        found = await consumer.fetch(T0, 0)
        assert (len(found.records), found.next_offset) == (3, 3)


@in_simulation
async def test_a_corrupt_batch_does_not_hide_the_records_before_it(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    damaged = bytearray(batch(2, 1))
    damaged[16] = 9  # the magic
    answers = [FetchedPartition(0, high_watermark=3, records=batch(0, 2) + bytes(damaged))]
    broker.topics["t"] = {0: 0}
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, [answers.pop(0)])
    await broker.start()
    async with SimpleConsumer("broker:9092", runtime=simulation.runtime("client")) as consumer:
        found = await consumer.fetch(T0, 0)
        assert (len(found.records), found.next_offset) == (2, 2)


@in_simulation
async def test_a_batch_of_far_too_many_bytes_is_an_error_with_the_offset_after_it(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    large = encode_batch([(0, None, bytes(17 << 20), ())], codec=Codec.ZSTD)
    broker.topics["t"] = {0: 0}
    answers = [FetchedPartition(0, high_watermark=1, records=large)]
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, answers)
    await broker.start()
    async with SimpleConsumer("broker:9092", runtime=simulation.runtime("client")) as usual:
        assert len((await usual.fetch(T0, 0)).records) == 1
    async with SimpleConsumer("broker:9092", runtime=simulation.runtime("small"), fetch_max_bytes=1 << 20) as small:
        with pytest.raises(CorruptRecordsError) as caught:
            await small.fetch(T0, 0)
        assert (caught.value.offset, caught.value.next_offset) == (0, 1)


@in_simulation
async def test_compressed_records_are_decoded_where_no_thread_can_be_started(
    simulation: Simulation, broker: Any, answer_fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = encode_batch([(0, None, b"a", ())], codec=Codec.ZSTD)

    def refuse(worker: InlineWorker, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        del worker, work
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(OSError(errno.EAGAIN, "the system starts no thread"))
        return future

    broker.topics["t"] = {0: 0}
    answers = [FetchedPartition(0, high_watermark=1, records=records)]
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, answers)
    await broker.start()
    async with SimpleConsumer("broker:9092", runtime=simulation.runtime("client")) as consumer:
        monkeypatch.setattr(InlineWorker, "submit", refuse)
        assert [each.value for each in (await consumer.fetch(T0, 0)).records] == [b"a"]
