"""Workloads that produce to a topic of one partition: records per second, and the client's CPU per record.

Every client has the same settings: acks=1, linger 5 ms, batches of 64 KiB, no compression. Connecting is not measured.
"""

import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager

from bench.clients.workloads import Figures

_LINGER_MS = 5
_BATCH_BYTES = 64 << 10
_FLUSH_S = 120
_ROWS_AT_ONCE = 200_000
"""Rows of one `send_arrow`."""
_ARROW_TIMES = 10
"""`send_arrow` gets this many times the records of the other clients, since its run would be too short."""


@contextmanager
def _measured(count: int, figures: Figures) -> Iterator[None]:
    """Add the block's records per second and CPU to `figures`."""
    cpu, started = time.process_time(), time.perf_counter()
    yield
    figures["records_per_second"] = count / (time.perf_counter() - started)
    figures["cpu_us_per_record"] = (time.process_time() - cpu) / count * 1e6


def produce_odradek(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int) -> Figures:
    """Send `count` records with Odradek's `send`."""
    return _run(_produce_odradek(bootstrap_servers, topic, count, record_bytes))


async def _produce_odradek(bootstrap_servers: str, topic: str, count: int, record_bytes: int) -> Figures:
    from odradek.clients import Producer

    figures: Figures = {}
    value = b"x" * record_bytes
    async with Producer(bootstrap_servers, acks=1, linger_ms=_LINGER_MS, batch_size=_BATCH_BYTES) as producer:
        await (await producer.send(topic, value))
        with _measured(count, figures):
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
        assert not producer.metrics()["record_error_total"]
    return figures


def produce_arrow(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int) -> Figures:
    """Send ten times `count` rows with Odradek's `send_arrow`."""
    return _run(_produce_arrow(bootstrap_servers, topic, count * _ARROW_TIMES, record_bytes))


async def _produce_arrow(bootstrap_servers: str, topic: str, count: int, record_bytes: int) -> Figures:
    import pyarrow as pa

    from odradek.clients import Producer

    figures: Figures = {}
    table = pa.table({"value": [b"x" * record_bytes] * _ROWS_AT_ONCE})
    async with Producer(bootstrap_servers, acks=1) as producer:
        # The first call loads the compiled code.
        await producer.send_arrow(table.slice(0, 10), topic)
        await producer.flush()
        with _measured(count, figures):
            for start in range(0, count, _ROWS_AT_ONCE):
                await producer.send_arrow(table.slice(0, min(_ROWS_AT_ONCE, count - start)), topic)
            await producer.flush()
        assert not producer.metrics()["record_error_total"]
    return figures


def produce_confluent(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int) -> Figures:
    """Send `count` records with confluent-kafka, without callbacks."""
    from confluent_kafka import Producer

    figures: Figures = {}
    value = b"x" * record_bytes
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "1",
            "linger.ms": _LINGER_MS,
            "batch.size": _BATCH_BYTES,
            "queue.buffering.max.kbytes": 32 << 10,
            "log_level": 0,
        }
    )
    producer.produce(topic, value)
    assert not producer.flush(_FLUSH_S)
    with _measured(count, figures):
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert not producer.flush(_FLUSH_S)
    return figures


def produce_aiokafka(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int) -> Figures:
    """Send `count` records with aiokafka."""
    return _run(_produce_aiokafka(bootstrap_servers, topic, count, record_bytes))


async def _produce_aiokafka(bootstrap_servers: str, topic: str, count: int, record_bytes: int) -> Figures:
    from aiokafka import AIOKafkaProducer

    figures: Figures = {}
    value = b"x" * record_bytes
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, acks=1, linger_ms=_LINGER_MS, max_batch_size=_BATCH_BYTES
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
        with _measured(count, figures):
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
    finally:
        await producer.stop()
    return figures


def produce_kafka_python(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int) -> Figures:
    """Send `count` records with kafka-python."""
    from kafka import KafkaProducer

    figures: Figures = {}
    value = b"x" * record_bytes
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks=1,
        linger_ms=_LINGER_MS,
        batch_size=_BATCH_BYTES,
        enable_idempotence=False,
    )
    producer.send(topic, value).get(_FLUSH_S)
    with _measured(count, figures):
        for _ in range(count):
            producer.send(topic, value)
        producer.flush(_FLUSH_S)
    producer.close()
    return figures


def _run(workload: Coroutine[object, object, Figures]) -> Figures:
    """Run a coroutine on uvloop, on which both asyncio clients are faster."""
    import uvloop

    return uvloop.run(workload)
