"""Compressed batches: how large they become, and those that a broker refuses as too large (M2)."""

import asyncio
import logging
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.clients.producer.compression_ratio import CompressionRatioEstimator
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.records import decode_records
from odradek.protocol.messages.produce import PartitionResponse, TopicResponse, encode_produce_response
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.world.scenes import in_world


def refusing(log: Any, max_bytes: int) -> Any:
    """A broker with `max.message.bytes`, for requests of one partition."""

    def answer(request: Any) -> Any:
        (topic,) = request.message.topics
        ((number, records),) = topic.partitions
        if len(records) <= max_bytes:
            return log(request)
        response = TopicResponse(
            topic.name, topic.topic_id, [PartitionResponse(number, ErrorCode.message_too_large.value)]
        )
        return encode_produce_response(request.version, [response])

    return answer


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_too_large_for_the_broker_is_sent_as_smaller_ones(
    play: Any, values: Any, new_log: Any, idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log()
    contents = [b"%03d" % number + b"x" * 97 for number in range(100)]

    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        headers = {"n": b"1"}
        futures = [
            await producer.send("t", value, b"k", partition=0, timestamp_ms=5, headers=headers) for value in contents
        ]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(100))
        assert [future.result().timestamp for future in futures] == [5] * 100
        metrics = producer.metrics()
        assert metrics["batch_split_total"] > 3
        assert metrics["record_error_total"] == metrics["record_retry_total"] == 0
        assert metrics["buffer_available_bytes"] == free

    with caplog.at_level(logging.WARNING, "odradek.clients"):
        play(refusing(log, 1_500), scene, batch_size=20_000, linger_ms=20, enable_idempotence=idempotent)
    assert values(log) == contents
    assert all(
        (record.key, record.headers) == (b"k", (("n", b"1"),)) for record in decode_records(log.taken[0].records)
    )
    assert "A batch of 100 records" in caplog.text
    if idempotent:
        sequences = [(batch.header.base_sequence, batch.header.record_count) for batch in log.taken]
        assert [start for start, _ in sequences] == [sum(n for _, n in sequences[:i]) for i in range(len(sequences))]


def test_later_batches_wait_for_the_parts_of_one_that_is_split(play: Any, values: Any, new_log: Any) -> None:
    """Five in flight: those after the refused one are out of order to the broker, and are retried after its parts."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        for number in range(60):
            await producer.send("t", b"%02d" % number * (200 if number < 10 else 5), partition=0)
        await producer.flush()

    play(refusing(log, 2_000), scene, batch_size=5_000, linger_ms=0)
    assert [int(value[:2]) for value in values(log)] == list(range(60))


def test_one_record_that_is_too_large_fails_alone(play: Any, values: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        futures = [
            await producer.send("t", b"x" * size, partition=0) for size in (10, 20, 900, 30, 40)
        ]  # all in one batch
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, KafkaError) for result in results] == [False, False, True, False, False]
        assert isinstance(results[2], KafkaError)
        assert results[2].code is ErrorCode.message_too_large

    play(refusing(log, 500), scene, batch_size=5_000, linger_ms=20)
    assert list(map(len, values(log))) == [10, 20, 30, 40]


def test_flush_waits_for_the_parts_of_a_batch(play: Any, new_log: Any) -> None:
    log = new_log()

    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.5)
        return refusing(log, 500)(request)

    async def scene(producer: Producer) -> None:
        futures = [await producer.send("t", b"x" * 100, partition=0) for _ in range(10)]
        await producer.flush()
        assert all(future.done() for future in futures)

    play(slowly, scene, batch_size=5_000, linger_ms=0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_size_limits_compressed_bytes(play: Any, new_log: Any, codec: str) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        for number in range(12_000):
            await producer.send("t", b"%06d" % number * 10, partition=0)
            if number % 400 == 0:
                await producer.flush()
        await producer.flush()
        assert producer.metrics()["compression_rate_avg"] < 0.75

    play(log, scene, batch_size=4_000, compression_type=codec, linger_ms=1_000)
    assert max(len(batch.records) for batch in log.taken) <= 4_000
    # The estimate falls slowly: more and more records fit.
    counts = [batch.header.record_count for batch in log.taken]
    assert max(counts[-10:]) > 1.3 * max(counts[:10])


def test_the_estimated_ratio_rises_at_once_and_falls_slowly() -> None:
    estimator = CompressionRatioEstimator()
    assert estimator.estimation("t") == pytest.approx(1.05)
    estimator.update("t", 0.5)
    assert estimator.estimation("t") == pytest.approx(0.995 * 1.05)
    for _ in range(200):
        estimator.update("t", 0.5)
    assert estimator.estimation("t") == pytest.approx(0.5 * 1.05)
    estimator.update("t", 0.51)
    assert estimator.estimation("t") == pytest.approx(0.55 * 1.05)
    estimator.update("t", 0.9)
    assert estimator.estimation("t") == pytest.approx(0.9 * 1.05)
    estimator.reset("t", 0.4)
    assert estimator.estimation("t") == pytest.approx(1.05)
    assert estimator.estimation("u") == pytest.approx(1.05)


@in_world({"message.max.bytes": "700"})
async def test_a_topic_with_a_small_max_message_bytes_takes_all_records(world: World) -> None:
    """Against a real broker, with compression."""
    await world.create_topic("t")
    async with world.producer("client", batch_size=40_000, linger_ms=20, compression_type="lz4") as producer:
        for number in range(300):
            await producer.send("t", b"%d" % number * 40)
        await producer.flush()
        assert producer.metrics()["batch_split_total"] > 0
    assert (await world.read("t", 1))[0] == [b"%d" % number * 40 for number in range(300)]


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", -1), ("gzip", 1), ("lz4", 1), ("lz4", 17), ("zstd", -131_072), ("zstd", 22)]
)
def test_every_allowed_compression_level_can_be_used(
    play: Any, values: Any, new_log: Any, codec: str, level: int
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send("t", b"x" * 1_000, partition=0)

    settings: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": level}
    play(log, scene, **settings)
    assert values(log) == [b"x" * 1_000]


@pytest.mark.parametrize(("codec", "best"), [("gzip", 9), ("lz4", 17), ("zstd", 22)])
def test_compression_levels_change_the_size(
    simulation: Simulation, broker: Any, play: Any, new_log: Any, codec: str, best: int
) -> None:
    """KIP-390."""
    log = new_log()

    async def scene(_: Producer) -> None:
        for level in (1, best):
            settings: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": level}
            async with Producer(
                broker.address, runtime=simulation.runtime("client"), batch_size=100_000, acks=1, **settings
            ) as producer:
                for number in range(500):
                    await producer.send("t", b"%d" % (number * number * 7919), partition=0, timestamp_ms=0)

    play(log, scene)
    fast, small = (len(batch.records) for batch in log.taken)
    assert small < fast
