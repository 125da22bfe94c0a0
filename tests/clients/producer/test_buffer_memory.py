"""Back-pressure: who waits for `buffer.memory`, who gives it back, and who is told that there is none (M2)."""

import asyncio
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.model import KafkaError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.testing import Simulation
from tests.world.scenes import in_simulation


def slow(log: Any, seconds: float = 1.0) -> Any:
    async def answer(request: Any) -> Any:
        await asyncio.sleep(seconds)
        return log(request)

    return answer


def test_a_cancelled_send_makes_room_for_the_next(play: Any, values: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send("t", b"a" * 800, partition=0)
        cancelled = asyncio.ensure_future(producer.send("t", b"b" * 900, partition=0))
        await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(producer.send("t", b"c" * 100, partition=0))
        await asyncio.sleep(0.1)
        assert producer.metrics()["waiting_threads"] == 2
        cancelled.cancel()
        # The small record waited behind the large one only, and the broker takes a second.
        async with asyncio.timeout(0.5):
            await waiting

    play(slow(log), scene, buffer_memory=1_100, linger_ms=0)
    assert values(log) == [b"a" * 800, b"c" * 100]


@pytest.mark.parametrize("turns", range(4))
def test_a_send_cancelled_as_it_gets_memory_returns_it(
    simulation: Simulation, play: Any, new_log: Any, turns: int
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        first = await producer.send("t", b"a" * 800, partition=0)
        blocked = asyncio.ensure_future(producer.send("t", b"b" * 900, partition=0))
        await asyncio.sleep(0)
        await first
        for _ in range(turns):
            await asyncio.sleep(0)
        blocked.cancel()
        await asyncio.gather(blocked, return_exceptions=True)
        await producer.flush()
        assert producer.metrics()["buffer_available_bytes"] == free

    play(log, scene, buffer_memory=1_000, linger_ms=0)


@in_simulation
async def test_memory_is_not_granted_twice() -> None:
    accumulator = RecordAccumulator(batch_size=100, linger_ms=0, buffer_memory=1_000)
    loop = asyncio.get_running_loop()
    accumulator.used_bytes = 900
    waiters = [loop.create_future() for _ in range(3)]
    for waiter in waiters:
        accumulator.wait_for_memory(600, waiter)
    accumulator.used_bytes = 300
    accumulator.grant_memory()
    accumulator.grant_memory()
    assert [waiter.done() for waiter in waiters] == [True, False, False]
    accumulator.stop_waiting(600, waiters[0])
    assert [waiter.done() for waiter in waiters] == [True, True, False]
    assert accumulator.available_bytes == 100


def test_close_raises_in_sends_that_wait_for_memory(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        lost = await producer.send("t", b"a" * 800, partition=0)
        blocked = [asyncio.ensure_future(producer.send("t", b"b" * 900, partition=0)) for _ in range(3)]
        await asyncio.sleep(0)
        await producer.close(timeout_ms=0)
        results = await asyncio.gather(lost, *blocked, return_exceptions=True)
        assert [type(result) for result in results] == [UnavailableError] * 4
        assert "closed before the record was delivered" in str(results[1])

    play(lambda _: None, scene, buffer_memory=1_000)


def test_max_block_ms_is_the_limit_for_metadata_and_memory_together(
    simulation: Simulation, broker: Any, play: Any, new_log: Any
) -> None:
    async def scene(producer: Producer) -> None:
        async def slowly(request: Any) -> Any:
            await asyncio.sleep(0.8)
            return broker.metadata(request)

        await producer.send("t", b"a" * 900, partition=0)
        broker.topics["u"] = {0: broker.node_id}
        broker.answers[ApiKey.METADATA] = slowly
        started = simulation.clock.elapsed_s
        with pytest.raises(UnavailableError, match="buffer_memory"):
            await producer.send("u", b"b" * 900)
        assert simulation.clock.elapsed_s - started == pytest.approx(1.0, abs=0.01)
        assert producer.metrics()["buffer_exhausted_total"] == 1
        await producer.close(timeout_ms=0)

    play(lambda _: None, scene, buffer_memory=1_000, max_block_ms=1_000)


def test_a_topic_that_is_deleted_while_a_record_waits_for_memory_is_an_error(
    play: Any, broker: Any, other_broker: Any, new_log: Any
) -> None:
    """Two brokers: one is slow, and the other one has the metadata."""

    async def scene(producer: Producer) -> None:
        await other_broker.start()
        await producer.partitions_for("u")
        await producer.send("t", b"a" * 900, partition=0)
        blocked = asyncio.ensure_future(producer.send("u", b"b" * 900))
        following = asyncio.ensure_future(producer.send("t", b"c" * 900, partition=0))
        await asyncio.sleep(0.1)
        del broker.topics["u"]
        # Metadata of another topic is looked up, and says that this one is gone.
        await producer.partitions_for("v")
        with pytest.raises(KafkaError, match="topic 'u' was deleted while the record waited for memory"):
            await blocked
        await following

    broker.nodes.append(other_broker)
    broker.topics["t"] = broker.topics["u"] = broker.topics["v"] = {0: other_broker.node_id}
    other_broker.answers[ApiKey.PRODUCE] = slow(new_log())
    play(None, scene, buffer_memory=1_000, linger_ms=0)


def test_a_refused_record_takes_no_memory(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        for arguments, error in (
            ({"value": b"x" * 2_000_000}, KafkaError),
            ({"value": "text"}, TypeError),
            ({"value": [b"x"]}, TypeError),
            ({"headers": [("a", "text")]}, TypeError),
            ({"headers": [(b"a", b"1")]}, TypeError),
            ({"headers": [("a",)]}, TypeError),
            ({"timestamp_ms": -1}, KafkaError),
            ({"timestamp_ms": 1.5}, TypeError),
            ({"timestamp_ms": 1 << 63}, KafkaError),
            ({"partition": 0.0}, TypeError),
        ):
            with pytest.raises(error):
                await producer.send("t", **{"partition": 0, **arguments})
        assert producer.metrics()["buffer_available_bytes"] == free

    play(new_log(), scene)
