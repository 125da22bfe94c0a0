"""Compaction by a broker that runs: by itself, beside everything else, and within its limits. Row M1."""

import asyncio
from collections.abc import Iterator
from typing import Any

from odradek.broker.log.cleaner.log_cleaner import CompactionJob, LogCleaner
from odradek.broker.log.log import Log
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World
from tests.world.scenes import played

T0 = TopicPartition("t", 0)
QUICK = {
    "log_cleaner_backoff_ms": 1000,
    "log_retention_check_interval_ms": 500,
    "log_cleaner_min_cleanable_ratio": 0.1,
}
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "2000", "file.delete.delay.ms": "100"}


def batch(world: World, key: bytes, value: bytes, **options: Any) -> bytearray:
    now_ms = world.runtime.clock.now_ms()
    return encode_batch([(now_ms, key, value, ())], **options)


def batches_of(log: Log) -> Iterator[bytes]:
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 20):
        for position, header in iterate_batches(data):
            yield data[position : position + header.size]
            offset = header.next_offset


async def fill(world: World, client: WireClient, count: int, *, keys: int = 5) -> None:
    for number in range(count):
        answer = await client.produce("t", batch(world, b"%d" % (number % keys), b"%d" % number * 30))
        assert answer.error_code == 0


@played
async def test_a_compacted_topic_is_compacted_by_itself_and_a_restart_goes_on_there(world: World) -> None:
    broker, client = await world.start(**QUICK), await world.client()
    await client.create_topic("t", config=COMPACT)
    await fill(world, client, 100)
    log = broker.logs.logs[T0]
    before = log.segments.size
    await world.pass_time(5)
    assert log.segments.size < before / 3
    assert (log.log_start_offset, log.log_end_offset) == (0, 100)
    active = log.segments.bases[-1]
    assert broker.logs.cleaner.offsets == {T0: active}
    left = [record.offset for data in batches_of(log) for record in decode_records(data)]
    assert left[-5:] == [95, 96, 97, 98, 99]
    assert len([offset for offset in left if offset < active]) == 5, "each of five keys once"
    names = world.runtime.disk.list("/data/t-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    await broker.stop()
    broker = await world.start(**QUICK)
    assert broker.logs.cleaner.offsets == {T0: active}
    await broker.stop()


@played
async def test_the_rate_of_compaction_is_limited_and_a_new_limit_holds_at_once(world: World) -> None:
    broker, client = await world.start(**QUICK, log_cleaner_io_max_bytes_per_second=1000.0), await world.client()
    await client.create_topic("t", config={**COMPACT, "segment.bytes": "20000"})
    await fill(world, client, 200)
    size = broker.logs.logs[T0].segments.size
    await world.pass_time(5)
    assert broker.logs.cleaner.is_busy_with(T0)
    assert broker.logs.logs[T0].segments.size == size
    await world.pass_time(2 * size / 1000 + 10)
    assert broker.logs.logs[T0].segments.size < size / 2
    stats = broker.logs.cleaner.stats
    assert stats.total_read_bytes > size  # twice, all but the last segment
    assert stats.clean_ms > 0.95 * (stats.total_read_bytes + stats.total_written_bytes)


@played
async def test_a_broker_that_is_stopped_meanwhile_leaves_the_log_as_it_was(world: World) -> None:
    config = {**QUICK, "log_cleaner_io_max_bytes_per_second": 1000.0, "log_cleaner_io_buffer_size": 2000}
    broker, client = await world.start(**config), await world.client()
    await client.create_topic("t", config={**COMPACT, "segment.bytes": "20000"})
    await fill(world, client, 200)
    while not [name for name in world.runtime.disk.list("/data/t-0") if name.endswith(".log.cleaned")]:
        await world.pass_time(1)
    await asyncio.wait_for(broker.stop(), 10)
    assert not [name for name in world.runtime.disk.list("/data/t-0") if name.endswith(".cleaned")]


@played
async def test_a_broker_that_must_not_compact_does_not(world: World) -> None:
    broker, client = await world.start(**QUICK, log_cleaner_enable=False), await world.client()
    await client.create_topic("t", config=COMPACT)
    await fill(world, client, 100)
    size = broker.logs.logs[T0].segments.size
    await world.pass_time(60)
    assert broker.logs.logs[T0].segments.size == size


@played
async def test_a_deleted_topic_ends_its_compaction(world: World) -> None:
    broker, client = await world.start(**QUICK, log_cleaner_io_max_bytes_per_second=1000.0), await world.client()
    await client.create_topic("t", config={**COMPACT, "segment.bytes": "20000"})
    await fill(world, client, 200)
    await world.pass_time(3)
    assert broker.logs.cleaner.is_busy_with(T0)
    await broker.controller.delete_topics(["t"])
    await world.pass_time(60)
    assert not broker.logs.cleaner.is_busy_with(T0)
    await client.create_topic("t", config=COMPACT)
    await fill(world, client, 100)
    await world.pass_time(100)
    assert broker.logs.cleaner.offsets[T0] > 0


@played
async def test_an_error_of_the_program_in_one_log_does_not_keep_others_from_compaction(
    world: World, monkeypatch: Any
) -> None:
    put_in = LogCleaner._swap_in

    def fail(self: LogCleaner, job: CompactionJob, now_ms: int) -> None:
        assert job.partition != T0, "not this one"
        put_in(self, job, now_ms)

    monkeypatch.setattr(LogCleaner, "_swap_in", fail)
    broker, client = await world.start(**QUICK), await world.client()
    await client.create_topic("t", config=COMPACT)
    await fill(world, client, 100)
    await world.pass_time(5)
    cleaner = broker.logs.cleaner
    assert "not this one" in cleaner.uncleanable[T0]
    assert not cleaner.is_busy_with(T0)
    assert not [name for name in world.runtime.disk.list("/data/t-0") if name.endswith(".cleaned")]
    await client.create_topic("u", config=COMPACT)
    for number in range(100):
        await client.produce("u", batch(world, b"%d" % (number % 5), b"%d" % number * 30))
    await world.pass_time(5)
    assert TopicPartition("u", 0) in cleaner.offsets
    await broker.stop()


def test_readers_get_on_all_the_time_while_segments_are_replaced(play: Play) -> None:
    """One reader begins again and again, with small fetches, and one follows the end; both at every step of swaps."""
    keys, changes, passes = 7, 600, 0

    async def write(world: World) -> None:
        async with world.producer("writer", batch_size=0, linger_ms=0, enable_idempotence=False) as producer:
            for number in range(changes):
                await producer.send("t", b"%d" % number, key=b"%d" % (number % keys))
                await asyncio.sleep(0.01)
            await producer.flush()

    async def read(world: World, host: str, end: int, **settings: Any) -> dict[bytes | None, bytes | None]:
        table = dict[bytes | None, bytes | None]()
        async with world.consumer(host, **settings) as consumer, asyncio.timeout(60):
            consumer.assign([T0])
            consumer.seek(T0, 0)
            while await consumer.position(T0) < end:
                records = await consumer.poll(1_000)
                offsets = [record.offset for record in records]
                assert offsets == sorted(set(offsets))
                table.update({record.key: record.value for record in records})
        return table

    async def scene(world: World) -> None:
        nonlocal passes
        broker = await world.start(**{**QUICK, "log_cleaner_backoff_ms": 1, "log_flush_interval_messages": 1})
        await (await world.client()).create_topic("t", config={**COMPACT, "segment.bytes": "200"})
        writing = world.spawn("writer", write(world))
        following = world.spawn("follower", read(world, "follower", changes))
        log = broker.logs.logs[T0]
        last = {b"%d" % (number % keys): b"%d" % number for number in range(changes)}
        while not writing.done():
            await read(world, "again", log.log_end_offset, max_partition_fetch_bytes=100, fetch_max_bytes=100)
            passes += 1
        await writing
        assert await following == last
        assert await read(world, "again", changes) == last
        assert log.segments.size < 200 * keys * 2
        await broker.stop()

    play(scene)
    assert passes > 5


@played
async def test_a_fetch_that_waits_while_segments_are_replaced_is_answered_after_the_next_record(world: World) -> None:
    broker, client, reader = await world.start(**QUICK), await world.client(), await world.client()
    await client.create_topic("t", config=COMPACT)
    await fill(world, client, 100)
    size = len(batch(world, b"4", b"99" * 30))
    reader.send_fetch([("t", 0, 99)], max_wait_ms=600_000, min_bytes=size + 1)
    await world.pass_time(5)
    assert (len(broker.purgatory), broker.logs.cleaner.offsets[T0] > 0) == (1, True)
    await client.produce("t", batch(world, b"k", b"next"))
    async with asyncio.timeout(60):
        answer = await reader.fetch_response()
    assert world.values(answer.topics[0].partitions[0].records) == [b"99" * 30, b"next"]
    assert len(broker.purgatory) == 0
    await broker.stop()
