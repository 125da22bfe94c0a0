"""Deserializers, interceptors, metrics and configuration keys of the consumer (M12)."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from odradek.clients import Consumer, ConsumerRecord, OffsetAndMetadata, RecordDeserializationError
from odradek.clients.consumer import ConsumerInterceptor, ConsumerSettings
from odradek.clients.settings import settings_of_properties
from odradek.config.definition import definitions
from odradek.model import ConfigurationError, TopicPartition
from odradek.simulation.world import World
from tests.clients.scenarios import T0, fill, play, poll_all, values
from tests.world.scenes import played_by


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


async def send(world: World, *pairs: tuple[bytes | None, bytes | None]) -> None:
    async with world.producer("writer") as producer:
        for key, value in pairs:
            await producer.send("t", value, key=key, partition=0)


# ---- deserializers


@played_by(play)
async def test_keys_and_values_are_deserialized_except_null_ones(world: World) -> None:
    await send(world, (b"a", b"1"), (None, b"2"), (b"c", None))
    async with world.consumer("reader", "t", key_deserializer=bytes.decode, value_deserializer=int) as consumer:
        found = await consumer.poll()
        assert [(record.key, record.value) for record in found] == [("a", 1), (None, 2), ("c", None)]


@pytest.mark.parametrize("by_iteration", [False, True])
@played_by(play)
async def test_a_record_that_cannot_be_deserialized_stops_the_consumer_before_it(
    world: World, *, by_iteration: bool
) -> None:
    """Records before it are returned; the error comes again until a seek past the record."""

    async def read(consumer: Consumer) -> list[ConsumerRecord]:
        return [await anext(consumer)] if by_iteration else await consumer.poll()

    await send(world, (None, b"0"), (None, b"1"), (b"k", b"x"), (None, b"3"))
    async with world.consumer("reader", "t", group_id="g", value_deserializer=json.loads) as consumer:
        found: list[ConsumerRecord] = []
        while len(found) < 2:
            found += await read(consumer)
        for _ in range(2):
            with pytest.raises(
                RecordDeserializationError, match=r"value_deserializer .* t-0, offset 2: JSON"
            ) as caught:
                await read(consumer)
            error = caught.value
            assert (error.partition, error.offset, error.origin) == (T0, 2, "value")
            assert (error.record.key, error.record.value) == (b"k", b"x")
            assert isinstance(error.__cause__, json.JSONDecodeError)
            assert await consumer.position(T0) == 2
        await consumer.commit()
        committed = (await consumer.committed(T0))[T0]
        assert committed is not None
        assert committed.offset == 2
        consumer.seek(T0, error.offset + 1)
        found += await read(consumer)
        assert [record.value for record in found] == [0, 1, 3]


@played_by(play, partitions=2)
async def test_other_partitions_are_read_beside_a_record_that_cannot_be_deserialized(world: World) -> None:
    async with world.producer("writer") as producer:
        await producer.send("t", b"x", partition=0)
        for value in range(50):
            await producer.send("t", b"%d" % value, partition=1)
    async with world.consumer("reader", "t", value_deserializer=int, max_poll_records=10) as consumer:
        found: list[int] = []
        errors = 0
        while len(found) < 50:
            try:
                found += [record.value for record in await consumer.poll()]
            except RecordDeserializationError:
                errors += 1
        assert found == list(range(50))
        assert errors > 0


# ---- interceptors


class Recorder(ConsumerInterceptor):
    def __init__(self) -> None:
        self.consumed: list[int] = []
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.consumed += values(records)
        return [record for record in records if record.offset % 2]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(offsets)


class Failing(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise RuntimeError("no")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("no")


class Nothing(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return None  # type: ignore[return-value]


@played_by(play, count=4)
async def test_interceptors_see_records_and_commits_in_order_and_failing_ones_are_skipped(
    world: World, *, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Recorder(), Recorder()
    interceptors = [Failing(), first, Nothing(), second]
    async with world.consumer("reader", "t", group_id="g", interceptors=interceptors) as consumer:
        found = values(await consumer.poll())
        assert found == [1, 3]
        assert (first.consumed, second.consumed) == ([0, 1, 2, 3], [1, 3])
        await consumer.commit()
        assert first.committed == [{T0: OffsetAndMetadata(4, "", 0)}]
    assert "Interceptor Failing failed for a commit" in caplog.text
    assert "Interceptor Nothing failed for 2 records" in caplog.text


@played_by(play, count=10)
async def test_iteration_goes_through_interceptors(world: World) -> None:
    recorder = Recorder()
    async with world.consumer("reader", "t", interceptors=[recorder]) as consumer:
        assert values([await anext(consumer), await anext(consumer)]) == [1, 3]
        assert recorder.consumed == [0, 1, 2, 3]
        assert await consumer.position(T0) == 4


def test_an_object_that_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_consume and on_commit: 'x' lacks"):
        Consumer(interceptors=["x"])  # type: ignore[list-item]


# ---- metrics


@played_by(play, partitions=2, count=100)
async def test_metrics_count_records_bytes_fetches_commits_and_rebalances(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g", max_poll_records=30) as consumer:
        assert consumer.metrics()["records_consumed_total"] == 0
        await poll_all(consumer, 60)
        await consumer.commit()
        await asyncio.sleep(7)
        found = consumer.metrics()
        assert found["records_consumed_total"] == 60
        assert found["bytes_consumed_total"] > 60 * 8
        assert found["fetch_total"] >= 1
        assert found["fetch_latency_max"] >= found["fetch_latency_avg"] > 0
        assert (found["commit_total"], found["rebalance_total"], found["assigned_partitions"]) == (1, 1, 2)
        assert found["t-0.records_lag"] + found["t-1.records_lag"] == 40
        assert found["records_lag_max"] == max(found["t-0.records_lag"], found["t-1.records_lag"])
        assert found["last_poll_seconds_ago"] >= 7
        await poll_all(consumer, 40)
        assert consumer.metrics()["records_lag_max"] == 0
        assert all(isinstance(number, int | float) for number in found.values())


@played_by(play, count=100)
async def test_columns_count_as_records_do(world: World) -> None:
    async with world.consumer("one", "t") as records, world.consumer("other", "t") as columns:
        await poll_all(records, 100)
        batch = await columns.poll_arrow()
        assert batch is not None
        assert batch.num_rows == 100
        names = ("records_consumed_total", "bytes_consumed_total")
        assert [records.metrics()[name] for name in names] == [columns.metrics()[name] for name in names]


# ---- configuration keys

KAFKA_4: dict[str, Any] = {
    "allow.auto.create.topics": True,
    "auto.commit.interval.ms": 5_000,
    "auto.offset.reset": "latest",
    "check.crcs": True,
    "client.rack": None,  # Kafka's default is the empty string
    "default.api.timeout.ms": 60_000,
    "enable.auto.commit": True,
    "exclude.internal.topics": True,
    "fetch.max.bytes": 52_428_800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "group.id": None,
    "group.instance.id": None,
    "heartbeat.interval.ms": 3_000,
    "isolation.level": "read_uncommitted",
    "max.partition.fetch.bytes": 1_048_576,
    "max.poll.interval.ms": 300_000,
    "max.poll.records": 500,
    "metadata.max.age.ms": 300_000,
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30_000,
    "retry.backoff.max.ms": 1_000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "session.timeout.ms": 45_000,
    "socket.connection.setup.timeout.ms": 10_000,
}
"""Kafka's keys that a consumer has, with Kafka's defaults."""
ABSENT = [
    "auto.include.jmx.reporter", "client.dns.lookup", "config.providers", "connections.max.idle.ms",
    "enable.metrics.push", "heartbeat.frequency",
    "interceptor.classes", "key.deserializer", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "receive.buffer.bytes", "sasl.login.callback.handler.class", "security.providers",
    "send.buffer.bytes", "share.acknowledgement.mode", "socket.connection.setup.timeout.max.ms",
    "ssl.cipher.suites", "value.deserializer",
]  # fmt: skip
"""The others of Kafka's consumer; those of security are examples."""


def test_keys_have_the_defaults_of_kafka() -> None:
    known = definitions(ConsumerSettings)
    made = ConsumerSettings()
    assert {key: getattr(made, known[key].attribute) for key in KAFKA_4} == KAFKA_4
    assert len({field.name for field in fields(ConsumerSettings)}) == len(known)


@pytest.mark.parametrize("key", ABSENT)
def test_a_key_that_is_absent_says_why(key: str) -> None:
    with pytest.raises(ConfigurationError, match="is not supported here: "):
        settings_of_properties({key: "1"}, ConsumerSettings)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_pol_records": 1}, "did you mean max_poll_records"),
        (
            {"auto_offset_reset": "by_duration:1d"},
            r"auto_offset_reset can't be 'by_duration:1d': .* by_duration:P1DT12H",
        ),
        ({"auto_offset_reset": "by_duration:P"}, "auto_offset_reset can't be"),
        ({"auto_offset_reset": "by_duration:P1DT"}, "auto_offset_reset can't be"),
        ({"auto_offset_reset": "soonest"}, "earliest, latest, none"),
        ({"key_deserializer": "json"}, "key_deserializer is a function of bytes, such as json.loads, not 'json'"),
        ({"sasl_kerberos_service_name": "kafka"}, "is not supported here: Kerberos"),
        ({"queued_max_messages_kbytes": 0}, "queued.max.messages.kbytes"),
    ],
)
def test_a_wrong_key_or_value_is_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Consumer(**settings)


def test_a_negative_offset_is_refused() -> None:
    consumer = Consumer()
    consumer.assign([T0])
    with pytest.raises(ValueError, match="an offset is 0 or more, not -2: use seek_to_beginning"):
        consumer.seek(T0, -2)


@played_by(play)
async def test_no_records_at_most_is_refused(world: World) -> None:
    async with world.consumer("reader", "t") as consumer:
        with pytest.raises(ValueError, match="max_records is 1 or more, not 0"):
            await consumer.poll(max_records=0)


@pytest.mark.parametrize(("reset", "found"), [("by_duration:PT1H", [1, 2]), ("by_duration:P2DT1S", [0, 1, 2])])
@played_by(play)
async def test_auto_offset_reset_goes_back_by_a_duration(world: World, *, reset: str, found: list[int]) -> None:
    """KIP-1106"""
    now_ms = world.runtime.clock.now_ms()
    async with world.producer("writer") as producer:
        for value, hours in enumerate((24, 0.5, 0)):
            await producer.send("t", b"%d" % value, partition=0, timestamp_ms=now_ms - round(hours * 3_600_000))
    async with world.consumer("reader", "t", auto_offset_reset=reset) as consumer:
        assert values(await consumer.poll()) == found


@played_by(play)
async def test_a_duration_without_records_is_the_end(world: World) -> None:
    await fill(world, 3)
    async with world.consumer("reader", "t", auto_offset_reset="by_duration:PT1S") as consumer:
        await world.pass_time(60)
        assert await consumer.poll(1_000) == []
        await send(world, (None, b"9"))
        assert values(await consumer.poll()) == [9]


@played_by(play)
async def test_a_consumer_is_closed_once_and_for_all(world: World) -> None:
    consumer = world.consumer("reader", "t")
    await consumer.start()
    await consumer.close()
    with pytest.raises(Exception, match="the consumer was closed: create another one"):
        await consumer.start()
