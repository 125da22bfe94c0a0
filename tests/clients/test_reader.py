"""Ranges of a partition as raw record batches, and what is behind them: leaders, transactions, offsets (M11)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.clients.admin.groups import alter_group_offsets
from odradek.clients.cluster import Cluster, open_cluster
from odradek.clients.group_offsets import OffsetAndMetadata, fetch_group_offsets
from odradek.clients.offsets import EARLIEST, LATEST, list_offsets, partitions_of
from odradek.clients.reader import PartitionReader
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.world.scenes import played_by

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


def play(world: World, scene: Callable[[Cluster], Awaitable[None]], *, count: int = 0) -> None:
    """`count` records in t-0, in batches of about ten."""

    async def scenario(_: World) -> None:
        async with world.producer("writer", batch_size=200, linger_ms=1_000) as producer:
            for number in range(count):
                await producer.send("t", b"%d" % number, partition=0, timestamp_ms=EPOCH_MS + number)
        async with open_cluster("broker:9092", runtime=world.simulation.runtime("reader")) as cluster:
            await scene(cluster)

    world.play(scenario)


def offsets_in(buffer: memoryview) -> list[int]:
    return [record.offset for position, _ in iterate_batches(buffer) for record in decode_records(buffer, position)]


async def read(reader: PartitionReader) -> list[list[int]]:
    return [offsets_in(buffer) async for buffer in reader]


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
@played_by(play, count=100)
async def test_a_range_is_in_whole_batches_that_cover_it(cluster: Cluster, *, max_bytes: int) -> None:
    reader = PartitionReader(cluster, T0, 37, 83, max_bytes=max_bytes)
    found = [offset for offsets in await read(reader) for offset in offsets]
    assert found == list(range(found[0], found[-1] + 1))
    assert 27 < found[0] <= 37
    assert 82 <= found[-1] < 93
    assert reader.position >= 83


@played_by(play)
async def test_an_empty_range_sends_no_request(cluster: Cluster) -> None:
    assert await read(PartitionReader(cluster, T0, 5, 5)) == []


@played_by(play, count=20)
async def test_a_range_beyond_the_log_is_an_error_with_the_logs_offsets(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match=r"t-0: the log does not hold offset 50") as caught:
        await read(PartitionReader(cluster, T0, 50, 60))
    assert caught.value.code == ErrorCode.offset_out_of_range
    with pytest.raises(UnavailableError, match=r"nothing came at offset 20 within 3000 ms; the log ends at 20"):
        await read(PartitionReader(cluster, T0, 0, 60, timeout_ms=3_000))
    with pytest.raises(KafkaError, match="there is no topic 'u'"):
        await read(PartitionReader(cluster, TopicPartition("u", 0), 0, 1, timeout_ms=1_000))
    with pytest.raises(KafkaError, match="has no partition 7, only 1 of them"):
        await read(PartitionReader(cluster, TopicPartition("t", 7), 0, 1, timeout_ms=1_000))


@played_by(play, count=100)
async def test_a_reader_left_early_cancels_its_fetch(cluster: Cluster) -> None:
    """The next fetch is under way already; the simulation would say who is left."""
    async for buffer in PartitionReader(cluster, T0, 0, 100, max_bytes=1):
        assert len(buffer) > 0
        break
    await asyncio.sleep(1)


@played_by(play, count=10)
async def test_a_range_may_end_in_records_written_later(cluster: Cluster, *, world: World) -> None:
    reading = asyncio.ensure_future(read(PartitionReader(cluster, T0, 0, 11)))
    await asyncio.sleep(2)
    assert not reading.done()
    async with world.producer("late") as producer:
        await producer.send("t", b"10", partition=0)
    assert [offset for offsets in await reading for offset in offsets] == list(range(11))


def scripted(
    simulation: Simulation, broker: Any, answers: list[Any], scene: Callable[[Cluster], Awaitable[None]]
) -> None:
    """A broker that gives `answers` to fetches, one after the other."""

    async def main() -> None:
        broker.topics["t"] = {0: 0}
        broker.answers[ApiKey.FETCH] = lambda request: answers.pop(0)(request)
        await broker.start()
        async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
            await scene(cluster)

    simulation.run(main())


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    return bytes(encode_batch([(0, None, b"v", ())] * count, base_offset=base_offset, **options))


def test_aborted_transactions_are_skipped(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    pieces = [
        batch(0, 2),
        batch(2, 2, producer_id=9, is_transactional=True),
        batch(4, 1, producer_id=9, is_transactional=True, is_control=True),
        batch(5, 1, producer_id=9, is_transactional=True),
        batch(6, 2),
    ]
    fetched = FetchedPartition(
        0, high_watermark=8, last_stable_offset=8, aborted_transactions=[(9, 2)], records=b"".join(pieces)
    )

    async def scene(cluster: Cluster) -> None:
        reader = PartitionReader(cluster, T0, 0, 8, isolation_level="read_committed")
        assert await read(reader) == [[0, 1], [5, 6, 7]]
        assert broker.asked(ApiKey.FETCH)[0].message.isolation_level == 1

    scripted(simulation, broker, [lambda request: answer_fetch(request, [fetched])], scene)


def test_a_reader_follows_a_leader_change(simulation: Simulation, broker: Any, answer_fetch: Any, close: Any) -> None:
    refused = FetchedPartition(0, error_code=ErrorCode.not_leader_or_follower.value)
    answers = [
        lambda request: answer_fetch(request, [refused]),
        lambda _: close,
        lambda request: answer_fetch(request, [FetchedPartition(0, high_watermark=3, records=batch(0, 3))]),
    ]

    async def scene(cluster: Cluster) -> None:
        assert await read(PartitionReader(cluster, T0, 0, 3)) == [[0, 1, 2]]

    scripted(simulation, broker, answers, scene)


def test_a_damaged_batch_is_not_returned(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    fetched = FetchedPartition(0, high_watermark=3, records=bytes(damaged))

    async def scene(cluster: Cluster) -> None:
        with pytest.raises(KafkaError) as caught:
            await read(PartitionReader(cluster, T0, 0, 3))
        assert caught.value.code == ErrorCode.corrupt_message

    scripted(simulation, broker, [lambda request: answer_fetch(request, [fetched])], scene)


@played_by(play, count=30)
async def test_offsets_are_found_by_end_and_by_time(cluster: Cluster) -> None:
    assert await partitions_of(cluster, ["t"]) == {"t": (0,)}
    wanted = {T0: LATEST}
    assert (await list_offsets(cluster, wanted))[T0].offset == 30
    assert (await list_offsets(cluster, {T0: EARLIEST}))[T0].offset == 0
    found = (await list_offsets(cluster, {T0: EPOCH_MS + 12}))[T0]
    assert (found.offset, found.timestamp) == (12, EPOCH_MS + 12)
    assert (await list_offsets(cluster, {T0: EPOCH_MS + 99}))[T0].offset == -1
    with pytest.raises(KafkaError, match="has no partition 7, only 1 of them"):
        await list_offsets(cluster, {TopicPartition("t", 7): LATEST})


def test_offsets_are_committed_without_membership(seed: int) -> None:
    """M11: a pipeline commits its progress; a group that has live members refuses."""
    world = World(seed, {"num.partitions": "2"})

    async def scene(cluster: Cluster) -> None:
        assert await fetch_group_offsets(cluster, "pipeline") == {}
        await alter_group_offsets(cluster, "pipeline", {T0: OffsetAndMetadata(7, "a note"), T1: OffsetAndMetadata(8)})
        assert await fetch_group_offsets(cluster, "pipeline") == {
            T0: OffsetAndMetadata(7, "a note", -1),
            T1: OffsetAndMetadata(8),
        }
        assert await fetch_group_offsets(cluster, "pipeline", [T1]) == {T1: OffsetAndMetadata(8)}
        async with world.consumer("member", "t", group_id="pipeline") as consumer:
            assert [record.offset for record in await consumer.poll()] == list(range(7, 20))
            with pytest.raises(KafkaError) as caught:
                await alter_group_offsets(cluster, "pipeline", {T0: OffsetAndMetadata(9)})
            assert caught.value.code == ErrorCode.unknown_member_id

    async def scenario(_: World) -> None:
        async with world.producer("writer") as producer:
            for number in range(20):
                await producer.send("t", b"%d" % number, partition=0)
        async with open_cluster("broker:9092", runtime=world.simulation.runtime("reader")) as cluster:
            await scene(cluster)

    world.play(scenario)
