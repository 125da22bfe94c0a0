"""Records between `send` and their acknowledgement: interceptors, serializers, metrics."""

import asyncio
import json
import logging
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.clients.producer import ProducerInterceptor, ProducerRecord, RecordMetadata
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.protocol.batches.records import decode_records


class Diary(ProducerInterceptor):
    """Notes everything, and signs the value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[ProducerRecord] = []
        self.acknowledged: list[tuple[RecordMetadata, Exception | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=f"{record.value}{self.name}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))


class Fails(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("on acknowledgement")


class Forgets(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


def test_interceptors_see_and_change_records_in_order(
    play: Any, values: Any, new_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log, first, second = new_log(), Diary("A"), Diary("B")

    async def scene(producer: Producer) -> None:
        await producer.send("t", "x", partition=0, timestamp_ms=7)
        await producer.send("t", "y", partition=0, timestamp_ms=8)

    with caplog.at_level(logging.ERROR, "odradek.clients"):
        play(log, scene, interceptors=[first, Fails(), Forgets(), second], value_serializer=str.encode)
    assert values(log) == [b"xAB", b"yAB"]
    assert [record.value for record in second.sent] == ["xA", "yA"]
    expected = [(RecordMetadata("t", 0, 0, 7), None), (RecordMetadata("t", 0, 1, 8), None)]
    assert first.acknowledged == second.acknowledged == expected
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("Interceptor Fails failed for a record of topic t") == 2
    assert messages.count("Interceptor Forgets failed for a record of topic t") == 2
    assert messages.count("Interceptor Fails failed for an acknowledgement") == 2


def test_interceptors_get_records_that_failed(play: Any, new_log: Any) -> None:
    diary = Diary("")

    async def scene(producer: Producer) -> None:
        with pytest.raises(KafkaError):
            await producer.send("t", "x" * 2_000_000, partition=1, timestamp_ms=3)
        with pytest.raises(TypeError):
            await producer.send("t", "x", b"k", headers=5)  # type: ignore[arg-type]
        with pytest.raises(KafkaError):
            await (await producer.send("t", "x", partition=0, timestamp_ms=4))

    play(new_log(ErrorCode.invalid_record), scene, interceptors=[diary], value_serializer=str.encode)
    assert [metadata for metadata, _ in diary.acknowledged] == [
        RecordMetadata("t", 1, -1, 3), RecordMetadata("t", -1, -1, -1), RecordMetadata("t", 0, -1, 4)
    ]  # fmt: skip
    assert [type(error) for _, error in diary.acknowledged] == [KafkaError, TypeError, KafkaError]


def test_an_acknowledgement_is_seen_even_if_the_future_was_cancelled(play: Any, new_log: Any) -> None:
    diary = Diary("")

    async def scene(producer: Producer) -> None:
        (await producer.send("t", "x", partition=0)).cancel()

    play(new_log(), scene, interceptors=[diary], value_serializer=str.encode)
    assert [(metadata.offset, error) for metadata, error in diary.acknowledged] == [(0, None)]


def test_an_object_without_the_methods_is_no_interceptor() -> None:
    with pytest.raises(ConfigurationError, match="on_send and on_acknowledgement"):
        Producer(interceptors=[object()])  # type: ignore[list-item]


def test_serializers_make_bytes_of_keys_and_values_and_none_stays_null(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send("t", {"a": 1}, "é", partition=0)
        await producer.send("t", partition=0)

    play(log, scene, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode())
    records = [record for batch in log.taken for record in decode_records(batch.records)]
    assert [(record.key, record.value) for record in records] == [("é".encode(), b'{"a": 1}'), (None, None)]


def test_a_serializer_that_fails_fails_its_send_alone(play: Any, values: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        with pytest.raises(KafkaError, match=r"value_serializer failed for a record of topic 't': TypeError: .*set"):
            await producer.send("t", {1}, partition=0)
        with pytest.raises(TypeError, match="bytes or None, not str: encode them, or give a serializer"):
            await producer.send("t", 1, "key", partition=0)
        assert producer.metrics()["buffer_available_bytes"] == free
        await producer.send("t", 5, partition=0)

    play(log, scene, value_serializer=lambda value: json.dumps(value).encode())
    assert values(log) == [b"5"]


def test_the_name_of_a_serializer_is_no_serializer() -> None:
    with pytest.raises(ConfigurationError, match="key_serializer is a function that returns bytes, not 'Str"):
        Producer(key_serializer="StringSerializer")  # type: ignore[arg-type]


def test_metrics_are_exact(play: Any, new_log: Any) -> None:
    """Two batches of 10 and 5 records in one request, then one that fails once and is retried."""
    log = new_log(ErrorCode.none, ErrorCode.none, ErrorCode.not_enough_replicas)
    buffer_bytes = 32 << 20

    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.1)
        return log(request)

    async def scene(producer: Producer) -> None:
        before = producer.metrics()
        assert before["record_send_total"] == before["batch_size_avg"] == before["requests_in_flight"] == 0
        assert before["buffer_total_bytes"] == before["buffer_available_bytes"] == buffer_bytes
        for partition, count in ((0, 10), (1, 5)):
            for _ in range(count):
                await producer.send("t", b"x" * 100, partition=partition)
        await asyncio.sleep(0.05)
        assert producer.metrics()["requests_in_flight"] == 1
        assert producer.metrics()["buffer_available_bytes"] < buffer_bytes - 1_500
        await producer.flush()
        await (await producer.send("t", b"y", partition=0))
        after = producer.metrics()
        sizes = [len(batch.records) for batch in log.seen]
        assert len(sizes) == 4
        assert after["record_send_total"] == 17
        assert after["record_retry_total"] == 1
        assert after["record_error_total"] == 0
        assert after["request_total"] == 3
        assert after["records_per_request_avg"] == pytest.approx(17 / 3)
        assert after["byte_total"] == sum(sizes)
        assert after["batch_size_avg"] == sum(sizes) / 4
        assert after["batch_size_max"] == max(sizes)
        assert after["compression_rate_avg"] == 1.0
        assert after["record_queue_time_avg"] > 5
        assert 100 <= after["request_latency_avg"] <= after["request_latency_max"] < 110
        assert after["requests_in_flight"] == 0
        assert after["buffer_available_bytes"] == buffer_bytes

    play(slowly, scene)


def test_metrics_count_records_that_fail(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        for _ in range(3):
            await producer.send("t", b"x", partition=0)
        await producer.flush()
        assert producer.metrics()["record_error_total"] == 3

    play(new_log(ErrorCode.invalid_record), scene, linger_ms=20)
