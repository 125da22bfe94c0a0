"""Workloads of transactions: their rate, and the times of their commits, by librdkafka's and by our producer."""

import asyncio
import itertools
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from bench.clients.librdkafka import settings_of
from bench.clients.workloads import Figures, new_topic, percentiles

_ANSWER_S: Final = 60.0
_WARM_UP: Final = 5
"""Transactions of each producer before the clock starts."""
_VALUE: Final = b"x" * 100
_QUICK: Final = {"linger.ms": 0, "log_level": 0}


class _Clock:
    """Counts transactions, and the times of their commits, until `seconds` after the first begin or `count` of them."""

    def __init__(self, seconds: float, count: int) -> None:
        self._seconds, self._count = seconds, count
        self._waits: list[float] = []
        self._started = self._ended = 0.0

    @property
    def runs(self) -> bool:
        """Whether another transaction is wanted."""
        now = time.perf_counter()
        self._started = self._started or now
        return len(self._waits) < self._count if self._count else now < self._started + self._seconds

    def committed(self, began: float) -> None:
        """Count a transaction whose commit began at `began`."""
        self._ended = time.perf_counter()
        self._waits.append((self._ended - began) * 1000)

    def figures(self) -> Figures:
        """Return the transactions, their rate, and the times of commits in ms."""
        count, seconds = len(self._waits), self._ended - self._started
        return {"transactions": float(count), "transactions_per_second": count / seconds, **percentiles(self._waits)}


def transactions(
    bootstrap_servers: str,
    *,
    records: int,
    producers: int = 1,
    seconds: float = 0,
    count: int = 0,
    replicas: int = 1,
    topic: str = "",
    abort_every: int = 0,
) -> Figures:
    """Commit transactions of `records` records by librdkafka, each producer in a thread and to its own partition.

    With `abort_every`, each producer aborts one transaction of that many.
    """
    from confluent_kafka import Producer

    clock, failures = _Clock(seconds, count), list[BaseException]()
    ready = threading.Barrier(producers)

    def work(number: int, name: str) -> None:
        try:
            id_ = f"{name}-{number}"
            producer = Producer({**settings_of(bootstrap_servers), **_QUICK, "transactional.id": id_})
            producer.init_transactions(_ANSWER_S)
            for _ in range(_WARM_UP):
                _transaction(producer, name, number, records)
            ready.wait(_ANSWER_S)
            for ended in itertools.count(1):
                if not clock.runs:
                    break
                aborts = abort_every > 0 and ended % abort_every == 0
                clock.committed(_transaction(producer, name, number, records, aborts=aborts))
        except BaseException as error:
            failures.append(error)
            ready.abort()
            raise

    with _topic(bootstrap_servers, topic, producers, replicas) as name:
        threads = [threading.Thread(target=work, args=(number, name)) for number in range(producers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not failures, failures
    return clock.figures()


def _transaction(producer: Any, topic: str, partition: int, records: int, *, aborts: bool = False) -> float:
    """Produce and commit records; return when the commit began. An abort follows when all are acknowledged."""
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, _VALUE, partition=partition)
    if aborts:
        assert not producer.flush(_ANSWER_S)
    began = time.perf_counter()
    if aborts:
        producer.abort_transaction(_ANSWER_S)
    else:
        producer.commit_transaction(_ANSWER_S)
    return began


def our_transactions(
    bootstrap_servers: str, *, records: int, producers: int = 1, seconds: float, replicas: int = 1
) -> Figures:
    """Commit transactions of `records` records by Odradek's producer, all producers on one loop."""
    import uvloop

    clock = _Clock(seconds, 0)
    with new_topic(bootstrap_servers, producers, replicas) as topic:
        uvloop.run(_our_transactions(bootstrap_servers, topic, records, producers, clock))
    return clock.figures()


async def _our_transactions(address: str, topic: str, records: int, producers: int, clock: _Clock) -> None:
    from odradek.clients import Producer

    ready = asyncio.Barrier(producers)

    async def work(number: int) -> None:
        async with Producer(address, transactional_id=f"{topic}-{number}", linger_ms=0) as producer:

            async def transaction() -> float:
                await producer.begin_transaction()
                for _ in range(records):
                    await producer.send(topic, _VALUE, partition=number)
                began = time.perf_counter()
                await producer.commit_transaction()
                return began

            for _ in range(_WARM_UP):
                await transaction()
            await ready.wait()
            while clock.runs:
                clock.committed(await transaction())

    async with asyncio.TaskGroup() as group:
        for number in range(producers):
            group.create_task(work(number))


def process(bootstrap_servers: str, *, records: int, seconds: float, replicas: int = 1) -> Figures:
    """Consume, produce and commit offsets, `records` in each transaction, by librdkafka; all records are there before.

    The rate that is measured is that of one consumer and one producer.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    clock = _Clock(seconds, 0)
    where = settings_of(bootstrap_servers)
    with new_topic(bootstrap_servers, 1, replicas) as source, new_topic(bootstrap_servers, 1, replicas) as target:
        filler = Producer({**where, "linger.ms": 5})
        consumer = Consumer({**where, "group.id": source, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        consumer.subscribe([source])
        producer = Producer({**where, **_QUICK, "transactional.id": target})
        producer.init_transactions(_ANSWER_S)
        position = 0
        while position < _WARM_UP * records or clock.runs:
            for _ in range(records):
                filler.produce(source, _VALUE, partition=0)
            filler.flush(_ANSWER_S)
            taken = 0
            producer.begin_transaction()
            while taken < records:
                for message in consumer.consume(records - taken, _ANSWER_S):
                    producer.produce(target, message.value(), partition=0)
                    taken += 1
            position += taken
            began = time.perf_counter()
            offsets = [TopicPartition(source, 0, position)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _ANSWER_S)
            producer.commit_transaction(_ANSWER_S)
            if position > _WARM_UP * records:
                clock.committed(began)
        consumer.close()
    return clock.figures()


def _topic(bootstrap_servers: str, topic: str, partitions: int, replicas: int) -> AbstractContextManager[str]:
    """Return a block's topic: a given one, or a new one."""
    return nullcontext(topic) if topic else new_topic(bootstrap_servers, partitions, replicas)
