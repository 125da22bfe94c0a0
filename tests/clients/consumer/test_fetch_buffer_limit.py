"""Prefetched records have a limit of memory, which all brokers and partitions share (M12)."""

import asyncio

import pytest

from odradek.clients.consumer.fetching.fetch_buffer_limit import FetchBufferLimit
from odradek.clients.consumer.subscription_state import TopicPartitionState
from odradek.model import TopicPartition
from odradek.simulation.world import World
from tests.clients.scenarios import T0, T1, create, fill, poll_all
from tests.world.scenes import in_world

LIMIT = 1_000


def buffered(size: int, *, is_paused: bool = False) -> TopicPartitionState:
    return TopicPartitionState(
        TopicPartition("t", size), position=0, fetch_position=9, buffered_bytes=size, is_paused=is_paused
    )


@pytest.mark.parametrize(
    ("idle", "pending", "states", "expected"),
    [
        pytest.param([1], {}, [], {1: 800}, id="one broker: fetch.max.bytes"),
        pytest.param([1, 2], {}, [], {1: 500, 2: 500}, id="two brokers: half of the limit each"),
        pytest.param([1], {2: 500}, [], {1: 500}, id="beside a fetch in flight"),
        pytest.param([1], {2: 500}, [buffered(1)], {}, id="no room beside a fetch in flight"),
        pytest.param([1], {}, [buffered(500)], {1: 500}, id="half of the limit is free"),
        pytest.param([1], {}, [buffered(501)], {}, id="less than half of the limit is free"),
        pytest.param([1, 2], {}, [buffered(100)], {1: 500}, id="a turn for each"),
    ],
)
def test_shares(
    idle: list[int], pending: dict[int, int], states: list[TopicPartitionState], expected: dict[int, int]
) -> None:
    assert FetchBufferLimit(LIMIT, 800).shares(idle, pending, states) == expected


def test_paused_partitions_lose_their_records_if_they_would_stop_all_others() -> None:
    paused = buffered(900, is_paused=True)
    limit = FetchBufferLimit(LIMIT, 800)
    assert limit.shares([1], {}, [paused, buffered(100)]) == {}
    assert paused.buffered_bytes == 900
    assert limit.shares([1], {}, [paused]) == {1: 800}
    assert (paused.buffered_bytes, paused.fetch_position) == (0, 0)


@in_world()
async def test_a_slow_consumer_prefetches_no_more_than_the_limit(world: World) -> None:
    """And gets every record in the end, in turn from all partitions."""
    await create(world, partitions=4)
    await fill(world, 4_000, batch_size=2_000)
    async with world.consumer("reader", "t", queued_max_messages_kbytes=16, max_poll_records=50) as consumer:
        found: list[int] = []
        while len(found) < 4_000:
            await asyncio.sleep(1)
            states = list(consumer._subscriptions)
            assert sum(state.buffered_bytes for state in states) <= (16 << 10) + 2_000
            found += await poll_all(consumer, 1)
        assert sorted(found) == list(range(4_000))


@in_world()
async def test_a_paused_partition_is_not_fetched_again_after_it_resumes(world: World) -> None:
    await create(world, partitions=2)
    await fill(world, 100)
    async with world.consumer("reader", max_poll_records=10) as consumer:
        consumer.assign([T0, T1])
        found = await poll_all(consumer, 1)
        await asyncio.sleep(1)
        consumer.pause(T0, T1)
        assert await consumer.poll(1_000) == []
        (traffic,) = (each for topic, each in world.broker.partitions.traffic.items() if topic == "t")
        before = traffic.bytes_out
        consumer.resume(T0, T1)
        found += await poll_all(consumer, 90)
        assert sorted(found) == list(range(100))
        assert traffic.bytes_out == before
