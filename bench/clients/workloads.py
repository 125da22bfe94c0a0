"""Workloads: each function connects, measures with its own clock, and returns figures by name.

They run in the client's process. The client is librdkafka for both sides, called through its C functions where no
record is inspected, so that Python costs nothing.
"""

import random
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bench.clients.librdkafka import CConsumer, CProducer, Messages, settings_of

Figures = dict[str, float]
DEADLINE_SECONDS = 300
_LEADER_SECONDS = 30
_SILENCE_SECONDS = 10.0
_LATENCY_WARM_UP = 200
_NAP_S = 0.001
"""The shortest wait of librdkafka, in whole ms; a loop without a wait would take a core from the broker."""
_MESSAGES_AT_ONCE = 1000
_DIFFERENT_BATCHES = 16
_MIB = 1024 * 1024
_FETCH_QUEUE = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 * 1024,
    # By default librdkafka fetches nothing more for a second after its queue was full.
    "fetch.queue.backoff.ms": 0,
}


def produce(
    bootstrap_servers: str,
    *,
    record_bytes: int,
    batch_bytes: int,
    total_bytes: int,
    acks: str = "1",
    partitions: int = 0,
    replicas: int = 1,
    keys: int = 0,
    topic: str = "",
    compression: str = "none",
) -> Figures:
    """Produce `total_bytes` of values as fast as librdkafka can; measure from the first send to the last response.

    With `partitions` a topic of that many, of `replicas` each, is created and deleted afterwards; with 0 the server
    creates it at its first use. A given `topic` must exist, and stays. With `keys`, each record has one of that many
    random keys, and a random value. Compressed values are half random: digits of random numbers.
    """
    settings = {
        **settings_of(bootstrap_servers),
        "acks": acks,
        "compression.type": compression,
        "batch.size": batch_bytes,
        "batch.num.messages": 1_000_000,
        "linger.ms": 5,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 256 * 1024,
    }
    messages = [_keyed(record_bytes, keys, at) for at in range(0, keys, _MESSAGES_AT_ONCE)] if keys else []
    if compression != "none":
        messages = [Messages(_digits(record_bytes, at)) for at in range(_DIFFERENT_BATCHES)]
    messages = messages or [Messages([b"x" * record_bytes] * _MESSAGES_AT_ONCE)]
    at_once = messages[0].count
    batches = total_bytes // (record_bytes * at_once)
    with _topic(bootstrap_servers, topic, partitions, replicas) as name:
        producer = CProducer(settings)
        for partition in range(partitions or 1):
            producer.end_offset(name, partition)  # learn the leader before the clock starts
        started = time.perf_counter()
        for number in range(batches):
            producer.produce(name, number % (partitions or 1), messages[number % len(messages)])
        producer.flush(DEADLINE_SECONDS)
        seconds = time.perf_counter() - started
        _check_all_arrived(producer, name, partitions or 1, batches * at_once)
        producer.close()
    mib = batches * at_once * record_bytes / _MIB
    return {"mib": mib, "seconds": seconds, "mib_per_second": mib / seconds, "records": batches * at_once}


def _keyed(record_bytes: int, keys: int, seed: int) -> Messages:
    """Return records with random keys from `keys`, and random values."""
    chance = random.Random(seed)
    values = [chance.randbytes(record_bytes) for _ in range(_MESSAGES_AT_ONCE)]
    return Messages(values, keys=[b"%012d" % chance.randrange(keys) for _ in values])


def _digits(record_bytes: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(record_bytes // 2).hex().encode() for _ in range(_MESSAGES_AT_ONCE)]


def requests(bootstrap_servers: str, *, count: int, partitions: int = 0) -> Figures:
    """Produce one record per request, with many requests in flight; return requests per second."""
    settings = {
        **settings_of(bootstrap_servers),
        "acks": "1",
        "batch.num.messages": 1,
        "linger.ms": 0,
        "max.in.flight.requests.per.connection": 64,
        "queue.buffering.max.messages": 1_000_000,
    }
    messages = Messages([b"x" * 100] * 100)
    with _topic(bootstrap_servers, "", partitions) as name:
        producer = CProducer(settings)
        producer.end_offset(name, 0)
        started, used = time.perf_counter(), time.process_time()
        for _ in range(count // messages.count):
            producer.produce(name, 0, messages)
        producer.flush(DEADLINE_SECONDS)
        seconds, client_s = time.perf_counter() - started, time.process_time() - used
        _check_all_arrived(producer, name, 1, count // messages.count * messages.count)
        producer.close()
    rate = count / seconds
    return {"requests": float(count), "seconds": seconds, "requests_per_second": rate, "client_s": client_s}


def fetch(
    bootstrap_servers: str,
    *,
    topic: str,
    partitions: int,
    records: int,
    record_bytes: int,
    isolation_level: str = "read_committed",
) -> Figures:
    """Read `records` records of a topic from its beginning; measure from the first received records to the last."""
    consumer = CConsumer({**settings_of(bootstrap_servers), **_FETCH_QUEUE, "isolation.level": isolation_level})
    for partition in range(partitions):
        consumer.start(topic, partition)
    received = first = 0
    used = time.process_time()
    started = ended = time.perf_counter()
    while received < records:
        count = consumer.consume(_SILENCE_SECONDS)
        assert count, f"nothing came for {_SILENCE_SECONDS:.0f} seconds after {received} of {records} records"
        ended = time.perf_counter()
        if not received:
            started, first = ended, count
        received += count
    mib = received * record_bytes / _MIB
    client_ms = (time.process_time() - used) * 1000 / mib
    consumer.close()
    speed = (received - first) * record_bytes / _MIB / (ended - started)
    return {"mib": mib, "mib_per_second": speed, "client_ms_per_mib": client_ms}


def latency(bootstrap_servers: str, *, per_second: int, seconds: float, partitions: int = 0) -> Figures:
    """Send at a steady rate and receive in the same process; return milliseconds from `produce` to `poll`'s return."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    with _topic(bootstrap_servers, "", partitions) as topic:
        producer = Producer({**settings_of(bootstrap_servers), "acks": "1", "linger.ms": 0})
        consumer = Consumer(
            {
                **settings_of(bootstrap_servers),
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
            message = consumer.poll(_NAP_S)
            if message is not None and message.error() is None:
                received += 1
                if received > _LATENCY_WARM_UP:
                    waits.append((time.perf_counter() - float(message.value())) * 1000)
        consumer.close()
        producer.flush(10)
    assert received == wanted, f"{received} of {wanted} records came back"
    return percentiles(waits)


def percentiles(waits: list[float]) -> Figures:
    """Return the median and the 99th percentile of `waits`, in ms."""
    ordered = sorted(waits)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)]}


def saturate(bootstrap_servers: str, *, partitions: int = 0) -> Figures:
    """Produce 1 KiB records until SIGTERM, or for `DEADLINE_SECONDS`. Return no figures."""
    settings = {**settings_of(bootstrap_servers), "acks": "1", "batch.size": 1_000_000, "linger.ms": 5}
    messages = Messages([b"x" * 1024] * _MESSAGES_AT_ONCE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _topic(bootstrap_servers, "", partitions) as topic:
            producer = CProducer(settings)
            producer.end_offset(topic, 0)
            print("started", flush=True)
            deadline = time.perf_counter() + DEADLINE_SECONDS
            while time.perf_counter() < deadline:
                producer.produce(topic, 0, messages)
    except KeyboardInterrupt:
        pass
    return {}


def first_record(bootstrap_servers: str) -> Figures:
    """Return the seconds from the creation of a client until its first record is acknowledged."""
    from confluent_kafka import Producer

    started = time.perf_counter()
    producer = Producer({**settings_of(bootstrap_servers), "linger.ms": 0})
    producer.produce("bench-first", b"x")
    assert producer.flush(60) == 0
    return {"seconds": time.perf_counter() - started}


def fill(bootstrap_servers: str, *, topic: str, count: int, record_bytes: int, compression: str = "none") -> Figures:
    """Let the server create `topic`, and write `count` records, of 1,000 different ones, to its first partition."""
    messages = Messages(_digits(record_bytes, 1), keys=[b"%08d" % number for number in range(_MESSAGES_AT_ONCE)])
    settings = {**settings_of(bootstrap_servers), "compression.type": compression, "linger.ms": 50}
    with _topic(bootstrap_servers, topic, 0) as name:
        producer = CProducer(settings)
        for _ in range(count // messages.count):
            producer.produce(name, 0, messages)
        producer.flush(DEADLINE_SECONDS)
        _check_all_arrived(producer, name, 1, count // messages.count * messages.count)
        producer.close()
    return {}


def create_topic(
    bootstrap_servers: str,
    *,
    topic: str,
    partitions: int,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
) -> Figures:
    """Create a topic and wait until every partition has a leader, and all replicas are in sync."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(settings_of(bootstrap_servers))
    wanted = NewTopic(topic, partitions, replicas, config=dict(config or {}))
    for future in admin.create_topics([wanted], operation_timeout=_LEADER_SECONDS).values():
        future.result()
    await_leaders(admin, topic, replicas)
    return {}


def alter_topic(bootstrap_servers: str, *, topic: str, config: Mapping[str, str]) -> Figures:
    """Set keys of a topic's configuration; return `asked_at`, the time of the request in s since 1970."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    admin = AdminClient(settings_of(bootstrap_servers))
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.list_topics(timeout=_LEADER_SECONDS)  # connect before the clock starts
    asked_at = time.time()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    return {"asked_at": asked_at}


def delete_topic(bootstrap_servers: str, *, topic: str) -> Figures:
    """Delete a topic; the server may remove its files later."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(settings_of(bootstrap_servers))
    for future in admin.delete_topics([topic]).values():
        future.result()
    return {}


def new_topic(bootstrap_servers: str, partitions: int, replicas: int = 1) -> AbstractContextManager[str]:
    """Create a topic for a block, and delete it at the end."""
    return _topic(bootstrap_servers, "", partitions, replicas)


@contextmanager
def _topic(bootstrap_servers: str, topic: str, partitions: int, replicas: int = 1) -> Iterator[str]:
    """Yield a topic's name: a given one, one that the server creates, or with `partitions` one deleted at the end."""
    from confluent_kafka.admin import AdminClient

    name = topic or f"bench-{uuid.uuid4().hex[:8]}"
    if topic or not partitions:
        await_leaders(AdminClient(settings_of(bootstrap_servers)), name)
        yield name
        return
    create_topic(bootstrap_servers, topic=name, partitions=partitions, replicas=replicas)
    try:
        yield name
    finally:
        delete_topic(bootstrap_servers, topic=name)


def await_leaders(admin: Any, topic: str, replicas: int = 1, *, within_s: float = _LEADER_SECONDS) -> Any:
    """Return the topic's metadata when every partition has a leader and `replicas` replicas in sync.

    A metadata request for a missing topic makes most servers create it. Raises `TimeoutError`.
    """
    deadline = time.perf_counter() + within_s
    while time.perf_counter() < deadline:
        seen = admin.list_topics(topic, timeout=10).topics.get(topic)
        found = seen.partitions.values() if seen is not None and seen.error is None else ()
        if found and all(each.leader >= 0 and len(each.isrs) >= replicas for each in found):
            return seen
        time.sleep(0.01)
    raise TimeoutError(f"topic {topic} has no leader, or not all replicas in sync, after {within_s:g} seconds")


def _check_all_arrived(producer: CProducer, topic: str, partitions: int, count: int) -> None:
    """Check that no record is missing. Retries may have written a record twice."""
    there = sum(producer.end_offset(topic, partition) for partition in range(partitions))
    assert there >= count, f"{there} of {count} records arrived"
