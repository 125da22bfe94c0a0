"""The consumer beside a broker in virtual time: what it hands out, what it commits, and from where it goes on (M12)."""

import asyncio

import pytest

from odradek.clients import OffsetAndMetadata
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.world import World
from tests.clients.scenarios import T0, T1, T2, fill, play, poll_all, values
from tests.world.scenes import played_by


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


@played_by(play, partitions=3, count=1_500)
async def test_iterating_gives_every_record_in_the_order_of_its_partition(world: World) -> None:
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async with world.consumer("reader", "t") as consumer:
        async for record in consumer:
            found[record.partition].append(int(record.value or b""))
            if sum(map(len, found.values())) == 1_500:
                break
    assert found == {number: list(range(number, 1_500, 3)) for number in range(3)}


@played_by(play, count=1_000)
async def test_a_loop_that_breaks_commits_exactly_the_records_it_got(world: World) -> None:
    """Records that were fetched and decoded, but not given out, are read again."""
    async with world.consumer("reader", "t", group_id="g") as consumer:
        count = 0
        async for _ in consumer:
            count += 1
            if count == 137:
                break
        assert await consumer.position(T0) == 137
    async with world.consumer("reader", "t", group_id="g") as consumer:
        assert (await consumer.committed(T0))[T0] == OffsetAndMetadata(137, "", 0)
        assert values(await consumer.poll(max_records=3)) == [137, 138, 139]


@played_by(play, count=100)
async def test_records_of_a_poll_are_committed_by_a_later_poll(world: World) -> None:
    """At least once: while the application works on a poll's records, they are not committed."""
    async with world.consumer("reader", "t", group_id="g", auto_commit_interval_ms=1_000) as consumer:
        assert values(await consumer.poll(max_records=10)) == list(range(10))
        await asyncio.sleep(30)
        assert await consumer.committed(T0) == {T0: None}
        assert values(await consumer.poll(max_records=10)) == list(range(10, 20))
        await asyncio.sleep(1)
        committed = (await consumer.committed(T0))[T0]
        assert committed is not None
        assert committed.offset == 10


@played_by(play, count=100)
async def test_returned_records_are_committed_even_if_no_more_arrive(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g", auto_commit_interval_ms=1_000) as consumer:
        await poll_all(consumer, 100)
        assert await consumer.poll(3_000) == []
        committed = (await consumer.committed(T0))[T0]
        assert committed is not None
        assert committed.offset == 100


@played_by(play, count=100)
async def test_without_automatic_commits_only_explicit_commits_are_stored(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g", enable_auto_commit=False) as consumer:
        await poll_all(consumer, 100)
        await consumer.commit({T0: 5})
    async with world.consumer("reader", "t", group_id="g", enable_auto_commit=False) as consumer:
        assert values(await consumer.poll(max_records=1)) == [5]
        await consumer.commit()
        await consumer.commit({T0: OffsetAndMetadata(7, "a note", 0)})
        assert await consumer.committed(T0) == {T0: OffsetAndMetadata(7, "a note", 0)}


@played_by(play, partitions=2, count=100)
async def test_a_seek_sets_the_position(world: World) -> None:
    async with world.consumer("reader") as consumer:
        consumer.assign([T0, T1])
        assert sorted(await poll_all(consumer, 100)) == list(range(100))
        consumer.seek(T0, 48)
        assert values(await consumer.poll()) == [96, 98]
        consumer.seek_to_beginning(T1)
        assert await consumer.position(T1) == 0
        assert values(await consumer.poll(max_records=2)) == [1, 3]
        consumer.seek_to_end()
        assert await consumer.poll(1_000) == []
        assert await consumer.position(T0) == 50
        await fill(world, 2, first=100)
        assert sorted(await poll_all(consumer, 2)) == [100, 101]


@played_by(play, partitions=2, count=100)
async def test_a_paused_partition_returns_no_records(world: World) -> None:
    async with world.consumer("reader") as consumer:
        consumer.assign([T0, T1])
        consumer.pause(T0)
        assert await poll_all(consumer, 50) == list(range(1, 100, 2))
        assert consumer.paused() == {T0}
        assert await consumer.poll(5_000) == []
        consumer.resume(T0)
        assert await poll_all(consumer, 50) == list(range(0, 100, 2))


@played_by(play, count=20)
async def test_a_poll_respects_its_maximum_of_records_and_its_timeout(world: World) -> None:
    async with world.consumer("reader", max_poll_records=7) as consumer:
        consumer.assign([T0])
        assert len(await consumer.poll()) == 7
        assert len(await consumer.poll(max_records=3)) == 3
        await poll_all(consumer, 10)
        started = world.now_s
        assert await consumer.poll(1_500) == []
        assert world.now_s - started == pytest.approx(1.5, abs=0.01)
        assert await consumer.poll(0) == []


@played_by(play, count=200)
async def test_a_poll_that_is_cancelled_loses_nothing(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g") as consumer:
        found: list[int] = []
        patience = 0.001
        while len(found) < 200:
            try:
                async with asyncio.timeout(patience):
                    found += values(await consumer.poll(max_records=9))
            except TimeoutError:
                patience *= 1.3
        assert found == list(range(200))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@played_by(play)
async def test_arrow_columns_equal_the_records(world: World, *, codec: str) -> None:
    pytest.importorskip("pyarrow")

    await fill(world, 300, compression_type=codec, batch_size=1_000)
    async with world.consumer("reader") as consumer:
        consumer.assign([T0])
        records = [*await consumer.poll(max_records=7), *await consumer.poll(max_records=1_000)]
        consumer.seek_to_beginning()
        rows = []
        first = await consumer.poll(max_records=3)
        while len(first) + len(rows) < 300:
            batch = await consumer.poll_arrow(columns=["topic", "offset", "key", "value", "headers"])
            assert batch is not None
            rows += batch.to_pylist()
        assert await consumer.poll_arrow(100) is None
    assert len(records) == 300, "one fetch brings them all"
    assert [row["offset"] for row in rows] == list(range(3, 300))
    assert [row["value"] for row in rows] == [record.value for record in records[3:]]


@played_by(play, count=5)
async def test_records_that_failed_to_become_columns_are_not_skipped(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    async with world.consumer("reader", "t") as consumer:
        first = await consumer.poll(max_records=2)
        with monkeypatch.context() as patch:
            patch.setattr("odradek.columns.decode_partitions", fail)
            with pytest.raises(MemoryError):
                await consumer.poll_arrow()
        assert await consumer.position(("t", 0)) == 2
        with pytest.raises(ValueError, match="columns are some of"):
            await consumer.poll_arrow(columns=["nonsense"])
        batch = await consumer.poll_arrow(columns=["offset"])
        assert batch is not None
        assert [record.offset for record in first] + batch.to_pydict()["offset"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("reset", "found"), [("earliest", [0, 1]), ("latest", [2])])
@played_by(play, count=2)
async def test_without_a_committed_offset_auto_offset_reset_sets_the_position(
    world: World, *, reset: str, found: list[int]
) -> None:
    async with world.consumer("reader", "t", group_id="g", auto_offset_reset=reset) as consumer:
        assert values(await consumer.poll(4_000)) == ([] if reset == "latest" else found)
        if reset == "latest":
            await fill(world, 1, first=2)
            assert values(await consumer.poll()) == found


@played_by(play, count=2)
async def test_without_an_offset_and_a_policy_polling_fails(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g", auto_offset_reset="none") as consumer:
        with pytest.raises(KafkaError, match="t-0 has no committed offset, and auto_offset_reset is none"):
            await consumer.poll()
    async with world.consumer("reader", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        with pytest.raises(KafkaError, match="does not hold offset 99") as caught:
            await consumer.poll()
        assert caught.value.code == ErrorCode.offset_out_of_range


@played_by(play, count=2)
async def test_an_offset_out_of_range_is_reset(world: World) -> None:
    async with world.consumer("reader") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        assert await poll_all(consumer, 2) == [0, 1]


@played_by(play, partitions=2, count=100)
async def test_offsets_are_found_by_time(world: World) -> None:
    async with world.consumer("reader") as consumer:
        found = await consumer.offsets_for_times({T0: EPOCH_MS + 30, T1: EPOCH_MS + 9_999})
        assert found[T0] is not None
        assert (found[T0].offset, found[T0].timestamp) == (15, EPOCH_MS + 30)
        assert found[T1] is None
        assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
        assert await consumer.end_offsets([T0, T1]) == {T0: 50, T1: 50}


@played_by(play, partitions=3, count=30)
async def test_without_a_group_a_subscription_is_every_partition(world: World) -> None:
    async with world.consumer("reader", "t") as consumer:
        assert sorted(await poll_all(consumer, 30)) == list(range(30))
        assert consumer.assignment() == {T0, T1, T2}
        assert all(map(consumer.is_at_end, consumer.assignment()))
        with pytest.raises(ConfigurationError, match="group_id"):
            await consumer.commit()


@played_by(play, count=100)
async def test_a_consumer_continues_after_a_broker_restart(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g") as consumer:
        found = await poll_all(consumer, 10, max_records=10)
        await world.kill()
        assert len(await consumer.poll(2_000, max_records=500)) <= 90
        consumer.seek(T0, 10)
        await world.start()
        await fill(world, 5, first=100)
        while len(found) < 105:
            found += values(await consumer.poll(5_000))
        assert found == list(range(105))
