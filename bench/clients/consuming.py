"""Workloads of Odradek's consumer: end-to-end latency, and its cost with many idle partitions."""

import asyncio
import socket
import struct
import time
from contextlib import AsyncExitStack
from typing import Final

from bench.clients.workloads import Figures, new_topic, percentiles
from odradek.clients import Consumer, Producer
from odradek.clients.cluster import ConnectionPurpose
from odradek.model import TopicPartition

_WARM_UP: Final = 200
_BYTES_ACKED: Final = 120
"""The offset in Linux's TCP_INFO of the bytes sent and acknowledged; the bytes received follow."""


def our_latency(bootstrap_servers: str, *, per_second: int, seconds: float) -> Figures:
    """Send at a steady rate and receive in the same process; return milliseconds from `send` to `poll`'s return."""
    with new_topic(bootstrap_servers, 1) as topic:
        return asyncio.run(_our_latency(bootstrap_servers, topic, per_second, seconds))


async def _our_latency(bootstrap_servers: str, topic: str, per_second: int, seconds: float) -> Figures:
    wanted = _WARM_UP + int(per_second * seconds)
    waits: list[float] = []
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(bootstrap_servers, acks="1", linger_ms=0))
        consumer = Consumer(
            bootstrap_servers=bootstrap_servers,
            fetch_max_wait_ms=100,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await stack.enter_async_context(consumer)
        consumer.assign([TopicPartition(topic, 0)])
        sending = asyncio.ensure_future(_send(producer, topic, wanted, per_second))
        received = 0
        while received < wanted:
            for record in await consumer.poll(10_000):
                received += 1
                if received > _WARM_UP:
                    waits.append((time.perf_counter() - float(record.value)) * 1000)
        await sending
    return percentiles(waits)


async def _send(producer: Producer, topic: str, count: int, per_second: int) -> None:
    started = time.perf_counter()
    for sent in range(count):
        await asyncio.sleep(max(started + sent / per_second - time.perf_counter(), 0))
        await producer.send(topic, repr(time.perf_counter()).encode(), partition=0)


def idle_partitions(bootstrap_servers: str, *, partitions: int, per_second: int, seconds: float) -> Figures:
    """Read one busy partition among idle ones; return fetches, bytes of the connection and client CPU ms per second."""
    with new_topic(bootstrap_servers, partitions) as topic:
        return asyncio.run(_idle_partitions(bootstrap_servers, topic, partitions, per_second, seconds))


async def _idle_partitions(
    bootstrap_servers: str, topic: str, partitions: int, per_second: int, seconds: float
) -> Figures:
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(bootstrap_servers, acks="1", linger_ms=0))
        consumer = Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        await stack.enter_async_context(consumer)
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await _exchange(producer, consumer, topic, per_second, per_second)
        before = _usage(consumer)
        started = time.perf_counter()
        await _exchange(producer, consumer, topic, int(per_second * seconds), per_second)
        elapsed = time.perf_counter() - started
        after = _usage(consumer)
    return {name: (after[name] - before[name]) / elapsed for name in after}


async def _exchange(producer: Producer, consumer: Consumer, topic: str, count: int, per_second: int) -> None:
    sending = asyncio.ensure_future(_send(producer, topic, count, per_second))
    received = 0
    while received < count:
        received += len(await consumer.poll(10_000))
    await sending


def _usage(consumer: Consumer) -> Figures:
    connection = consumer._cluster.connections.existing(0, ConnectionPurpose.FETCH)
    assert connection is not None
    assert connection._transport is not None
    used: socket.socket = connection._transport.get_extra_info("socket")
    info = used.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    sent, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    return {
        "fetches": consumer.metrics()["fetch_total"],
        "bytes_sent": sent,
        "bytes_received": received,
        "client_ms": time.process_time() * 1000,
    }
