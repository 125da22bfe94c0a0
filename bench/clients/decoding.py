"""Workloads that read a topic: records per second.

Other clients return an object per record; Odradek's consumer also Arrow batches, and Spark rows of a data frame.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from bench.clients.workloads import Figures

_FETCH_BYTES = 8 * 1024 * 1024
"""The fetch size of every consumer; librdkafka fetches as much by default to fill its queue."""
_KERNEL_RUNS = 5


class _Pace:
    """Counts records per second after the first batch, whose time includes connecting and metadata."""

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
    """Read `count` records with confluent-kafka's `consume`, and only count them."""
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


def consume_kafka_python(bootstrap_servers: str, *, topic: str, count: int, partitions: int = 1) -> Figures:
    """Read `count` records with kafka-python's `poll`."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", max_partition_fetch_bytes=_FETCH_BYTES
    )
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    pace = _Pace()
    while pace.received < count:
        found = consumer.poll(timeout_ms=10_000, max_records=10_000)
        pace.add(sum(len(records) for records in found.values()))
    consumer.close()
    return pace.figures()


def consume_poll(bootstrap_servers: str, *, topic: str, count: int, partitions: int = 1, **settings: Any) -> Figures:
    """Read `count` records with Odradek's `poll`."""
    return asyncio.run(_consume_ours(bootstrap_servers, topic, count, partitions, settings, is_arrow=False))


def consume_arrow(bootstrap_servers: str, *, topic: str, count: int, partitions: int = 1, **settings: Any) -> Figures:
    """Read `count` records into Arrow batches with Odradek's `poll_arrow`."""
    return asyncio.run(_consume_ours(bootstrap_servers, topic, count, partitions, settings, is_arrow=True))


async def _consume_ours(
    bootstrap_servers: str, topic: str, count: int, partitions: int, settings: Mapping[str, Any], *, is_arrow: bool
) -> Figures:
    from odradek.clients import Consumer
    from odradek.model import TopicPartition

    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        **settings,
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        pace = _Pace()
        while pace.received < count:
            if is_arrow:
                batch = await consumer.poll_arrow(timeout_ms=10_000)
                pace.add(0 if batch is None else batch.num_rows)
            else:
                pace.add(len(await consumer.poll(timeout_ms=10_000, max_records=10_000)))
        return pace.figures()


def kernel(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Decode a topic's raw record batches in memory, with checksums: the decoder alone; the best of 5 runs."""
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
    """Read all columns of a topic as a Spark batch and discard them; return the best of `runs`."""
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
