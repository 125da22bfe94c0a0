"""The loads, each a function that connects, measures with its own clock, and returns figures by name.

They run in the client's process, never in the broker's. librdkafka is the client wherever both sides can serve it;
`produce_batch` keeps Python out of its way.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

Figures = dict[str, float]
_DEADLINE_SECONDS = 300
_LATENCY_WARM_UP = 200
_FETCH_BYTES = 8 * 1024 * 1024
"""What every consumer asks of a partition at once; librdkafka asks for as much by itself, as it fills its queue."""
_KERNEL_RUNS = 5


def produce(
    bootstrap_servers: str, *, record_bytes: int, batch_bytes: int, total_bytes: int, acks: str = "1"
) -> Figures:
    """Produce `total_bytes` of values as fast as librdkafka can; seconds from the first send to the last reply."""
    from confluent_kafka import Producer

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": acks,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    _create(producer, topic)
    messages = [{"value": b"x" * record_bytes}] * 1000
    count = total_bytes // (record_bytes * len(messages))
    started = time.perf_counter()
    for _ in range(count):
        _produce_all(producer, topic, messages)
    left = producer.flush(_DEADLINE_SECONDS)
    seconds = time.perf_counter() - started
    assert left == 0, f"{left} records were not acknowledged"
    mib = count * len(messages) * record_bytes / (1024 * 1024)
    return {"mib": mib, "seconds": seconds, "mib_per_second": mib / seconds}


def requests(bootstrap_servers: str, *, count: int) -> Figures:
    """Produce one record a request, many requests in flight; requests per second."""
    from confluent_kafka import Producer

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "1",
            "batch.num.messages": 1,
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": 64,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    _create(producer, topic)
    messages = [{"value": b"x" * 100}] * 100
    started = time.perf_counter()
    for _ in range(count // len(messages)):
        _produce_all(producer, topic, messages)
    assert producer.flush(_DEADLINE_SECONDS) == 0
    seconds = time.perf_counter() - started
    return {"requests": float(count), "seconds": seconds, "requests_per_second": count / seconds}


def latency(bootstrap_servers: str, *, per_second: int, seconds: float) -> Figures:
    """Send at a steady rate and receive in the same process; milliseconds from `produce` to `poll`'s return."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "1", "linger.ms": 0})
    _create(producer, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "fetch.wait.max.ms": 100,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    wanted = _LATENCY_WARM_UP + int(per_second * seconds)
    waits: list[float] = []
    started = time.perf_counter()
    sent = received = 0
    while received < wanted and time.perf_counter() - started < seconds * 5 + 30:
        while sent < wanted and sent <= (time.perf_counter() - started) * per_second:
            producer.produce(topic, repr(time.perf_counter()).encode(), partition=0)
            sent += 1
        producer.poll(0)
        message = consumer.poll(1 / per_second / 2)
        if message is not None and message.error() is None:
            received += 1
            if received > _LATENCY_WARM_UP:
                waits.append((time.perf_counter() - float(message.value())) * 1000)
    consumer.close()
    producer.flush(10)
    assert received == wanted, f"{received} of {wanted} records came back"
    waits.sort()
    return {"p50_ms": waits[len(waits) // 2], "p99_ms": waits[int(len(waits) * 0.99)]}


def saturate(bootstrap_servers: str) -> Figures:
    """Produce 1 KiB records without end, until the process is told to stop."""
    from confluent_kafka import Producer

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "1", "batch.size": 1_000_000, "linger.ms": 5})
    _create(producer, topic)
    messages = [{"value": b"x" * 1024}] * 1000
    print("started", flush=True)
    deadline = time.perf_counter() + _DEADLINE_SECONDS
    while time.perf_counter() < deadline:
        _produce_all(producer, topic, messages)
    return {}


def first_record(bootstrap_servers: str) -> Figures:
    """Seconds until one record is acknowledged, from a client that has only just started."""
    from confluent_kafka import Producer

    started = time.perf_counter()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    producer.produce("bench-first", b"x")
    assert producer.flush(60) == 0
    return {"seconds": time.perf_counter() - started}


class _Pace:
    """Records per second after the first batch, which connecting, finding the topic and warming up belong to."""

    def __init__(self) -> None:
        self.received = 0
        self._first: tuple[int, float] | None = None

    def add(self, count: int) -> None:
        assert count, "nothing came for ten seconds"
        self.received += count
        if self._first is None:
            self._first = count, time.perf_counter()

    def figures(self) -> Figures:
        assert self._first is not None, "nothing was received"
        count, since = self._first
        assert self.received > count, "everything came in one batch: too few records to measure"
        return {"records_per_second": (self.received - count) / (time.perf_counter() - since)}


def consume_confluent(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Read `count` records with confluent-kafka's batch call, touching nothing but their number."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    pace = _Pace()
    while pace.received < count:
        messages = consumer.consume(10_000, timeout=10)
        pace.add(len(messages))
    consumer.close()
    return pace.figures()


def consume_aiokafka(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Read `count` records with aiokafka's `getmany`."""
    return asyncio.run(_consume_aiokafka(bootstrap_servers, topic, count))


async def _consume_aiokafka(bootstrap_servers: str, topic: str, count: int) -> Figures:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", max_partition_fetch_bytes=_FETCH_BYTES
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    pace = _Pace()
    while pace.received < count:
        batches = await consumer.getmany(timeout_ms=10_000, max_records=10_000)
        pace.add(sum(len(records) for records in batches.values()))
    await consumer.stop()
    return pace.figures()


def consume_arrow(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Read `count` records into Arrow batches with our consumer's `poll_arrow`."""
    return asyncio.run(_consume_arrow(bootstrap_servers, topic, count))


async def _consume_arrow(bootstrap_servers: str, topic: str, count: int) -> Figures:
    from odradek.clients import Consumer
    from odradek.model import TopicPartition

    async with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", max_partition_fetch_bytes=_FETCH_BYTES
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        pace = _Pace()
        while pace.received < count:
            batch = await consumer.poll_arrow(timeout_ms=10_000)
            pace.add(0 if batch is None else batch.num_rows)
        return pace.figures()


def kernel(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Decode a topic that is in memory as raw record batches: our kernel alone, checksums included, no broker."""
    from odradek.columns import iterate_columns

    buffers = asyncio.run(_read_raw(bootstrap_servers, topic, count))
    rates = []
    for _ in range(_KERNEL_RUNS):
        started = time.perf_counter()
        rows = sum(piece.num_rows for buffer in buffers for piece in iterate_columns(buffer, topic=topic))
        rates.append(rows / (time.perf_counter() - started))
        assert rows == count, f"{rows} of {count} rows"
    return {"records_per_second": max(rates)}


async def _read_raw(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    from odradek.clients.cluster import open_cluster
    from odradek.clients.reader import PartitionReader
    from odradek.model import TopicPartition

    async with open_cluster(bootstrap_servers) as cluster:
        return [bytes(raw) async for raw in PartitionReader(cluster, TopicPartition(topic, 0), 0, count)]


def spark_batch(bootstrap_servers: str, *, topic: str, runs: int = 3) -> Figures:
    """Read a whole topic as a Spark batch, all columns, into nothing; the best of `runs`, since the JVM warms up."""
    from odradek.spark.session import local_session, stop_session

    started = time.perf_counter()
    spark = local_session("odradek bench", keep_classes=False)
    session_seconds = time.perf_counter() - started
    source = (
        spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic)
    )
    rows = source.load().count()
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        source.load().write.format("noop").mode("overwrite").save()
        rates.append(rows / (time.perf_counter() - started))
    stop_session(spark)
    return {"rows": float(rows), "rows_per_second": max(rates), "session_seconds": session_seconds}


def fill(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int, compression: str = "none") -> Figures:
    """Create `topic` with one partition and put `count` records into it."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": compression, "linger.ms": 50})
    _create(producer, topic)
    chance = random.Random(1)
    messages = [
        {"key": b"%08d" % number, "value": chance.randbytes(record_bytes // 2).hex().encode()} for number in range(1000)
    ]
    for _ in range(count // len(messages)):
        _produce_all(producer, topic, messages, partition=0)
    assert producer.flush(_DEADLINE_SECONDS) == 0
    return {}


def _produce_all(producer: Any, topic: str, messages: list[dict[str, Any]], *, partition: int = 0) -> None:
    """Hand all messages over; waits where librdkafka's queue is full."""
    while messages:
        taken = producer.produce_batch(topic, [dict(message) for message in messages], partition=partition)
        messages = messages[taken:]
        producer.poll(0.01 if messages else 0)


def _create(producer: Any, topic: str) -> None:
    """Let the server create the topic, and wait until it has a leader."""
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        seen = producer.list_topics(topic, timeout=10).topics.get(topic)
        if seen is not None and seen.error is None and seen.partitions:
            return
    raise TimeoutError(f"topic {topic} has no leader after 30 seconds")


WORKLOADS: dict[str, Callable[..., Figures]] = {
    "produce": produce,
    "requests": requests,
    "latency": latency,
    "saturate": saturate,
    "first_record": first_record,
    "fill": fill,
    "spark_batch": spark_batch,
    "confluent-kafka": consume_confluent,
    "aiokafka": consume_aiokafka,
    "arrow": consume_arrow,
    "kernel": kernel,
}
