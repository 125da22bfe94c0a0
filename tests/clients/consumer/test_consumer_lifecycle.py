"""A consumer that is abandoned, cancelled or closed in the middle leaves nothing behind (M12)."""

import asyncio
import gc
import warnings
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.model import KafkaError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.clients.scenarios import T0, T1, create, fill, play, poll_all, values
from tests.world.scenes import in_simulation, played_by


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


def own_tasks() -> set[str]:
    """The names of tasks that consumers started."""
    words = ("fetch from", "validate", "positions", "metadata", "connect to", "group ", "automatic commit")
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(words)}


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 13, 50, 300])
@played_by(play, partitions=2, count=10)
async def test_a_consumer_closed_at_any_time_leaves_no_task(world: World, *, delay_ms: int) -> None:
    before = own_tasks()
    consumer = world.consumer("reader", "t", group_id="g")
    starting = asyncio.ensure_future(consumer.start())
    await asyncio.sleep(delay_ms / 1000)
    if not starting.done():
        starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    polling = asyncio.ensure_future(consumer.poll())
    await asyncio.sleep(delay_ms / 1000)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await consumer.close()
    assert own_tasks() - before == set()


@played_by(play, partitions=2, count=100)
async def test_a_poll_cancelled_in_each_millisecond_loses_no_record(world: World) -> None:
    found: list[int] = []
    async with world.consumer("reader", "t", group_id="g", max_poll_records=3) as consumer:
        for attempt in range(2_000):
            try:
                async with asyncio.timeout(attempt % 5 / 1000):
                    found += values(await consumer.poll())
            except TimeoutError:
                pass
            if len(found) == 100:
                break
    assert sorted(found) == list(range(100))


def test_an_event_loop_that_ends_in_the_middle_leaves_no_warning(
    simulation: Simulation, broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Another loop cannot go on with the consumer, and says so."""
    consumer = Consumer("t", bootstrap_servers=broker.address, runtime=simulation.runtime("reader"))
    broker.topics = {"t": {0: 0}}
    broker.answers[ApiKey.LIST_OFFSETS] = lambda _: None

    async def main() -> None:
        await broker.start()
        await consumer.start()
        await consumer.poll(100)

    async def later() -> None:
        with pytest.raises(UnavailableError, match="another event loop"):
            await consumer.poll(100)
        with pytest.raises(UnavailableError, match="another event loop"):
            await consumer.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulation.run(main())
        gc.collect()
        asyncio.run(later())
        gc.collect()
    assert [record.message for record in caplog.records if "never retrieved" in record.message] == []


@in_simulation
async def test_a_topic_without_partitions_is_no_partition(simulation: Simulation, broker: Any) -> None:
    broker.topics = {"t": {}}
    await broker.start()
    settings: dict[str, Any] = {"default_api_timeout_ms": 2_000, "metadata_max_age_ms": 3_000}
    async with Consumer(
        "t", bootstrap_servers=broker.address, runtime=simulation.runtime("reader"), **settings
    ) as consumer:
        assert await consumer.poll(1_000) == []
        assert await consumer.poll_arrow(100) is None
        assert consumer.assignment() == frozenset()
        with pytest.raises(KafkaError, match="there is no topic 't', or none of its partitions"):
            await consumer.partitions_for_topic("t")
        broker.topics = {"t": {0: 0}}
        await consumer.poll(5_000)
        assert consumer.assignment() == {T0}


@pytest.mark.parametrize("group_id", [None, "g"])
@played_by(play, count=10)
async def test_a_partition_that_was_added_is_read(world: World, *, group_id: str | None) -> None:
    async with (
        world.consumer("reader", "t", group_id=group_id, metadata_max_age_ms=5_000) as consumer,
        world.admin() as admin,
    ):
        found = await poll_all(consumer, 10)
        await admin.create_partitions("t", 2)
        async with world.producer("late") as producer:
            await producer.send("t", b"10", partition=1)
        found += await poll_all(consumer, 1)
        assert sorted(found) == list(range(11))
        assert consumer.assignment() == {T0, T1}


@played_by(play, partitions=3, count=200)
async def test_a_slow_consumer_reads_everything_once(world: World) -> None:
    """It works for longer than the session timeout between polls: heartbeats go on."""
    found: list[int] = []
    async with world.consumer("reader", "t", group_id="g", session_timeout_ms=6_000, max_poll_records=20) as consumer:
        while len(found) < 200:
            found += values(await consumer.poll(10_000))
            await asyncio.sleep(20)
        assert consumer.metrics()["rebalance_total"] == 1
    assert sorted(found) == list(range(200))


@played_by(play, count=10)
async def test_records_are_read_while_topics_come_and_go(world: World) -> None:
    async with (
        world.consumer("reader", metadata_max_age_ms=2_000) as consumer,
        world.admin() as admin,
    ):
        consumer.subscribe(pattern="t.*")
        found = await poll_all(consumer, 10)
        for number in range(3):
            name = f"t{number}"
            await create(world, name)
            await fill(world, 5, topic=name, first=100 * (number + 1))
            found += await poll_all(consumer, 5)
            await admin.delete_topics([name])
        await consumer.poll(5_000)
        assert {partition.topic for partition in consumer.assignment()} == {"t"}
        assert len(found) == len(set(found)) == 25
