"""A topic whose oldest segments are deleted while it is written, replicated and read.

A reader may only miss records below a log start offset. In the end, every acknowledged record from the log start offset
on is in the log; without a fault of retention, no record is deleted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from odradek.broker.log.log import Log
from odradek.model import TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "retained"


class Retained(Workload):
    """A producer and a reader of one partition with small segments."""

    config: ClassVar[Mapping[str, str]] = {
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "2000",
    }
    clients: ClassVar[Sequence[str]] = ("retained-writer", "retained-reader")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        writer, reader, *_ = self.clients
        self._place = TopicPartition(self.topics[0], 0)
        self._producer = world.producer(writer, batch_size=500, delivery_timeout_ms=3_000_000, **CLIENTS)
        self._consumer = world.consumer(reader, **CLIENTS)
        self._tasks: list[asyncio.Task[None]] = []
        self._acknowledged: dict[int, bytes] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._logs: dict[Log, None] = {}
        self._next = 0
        """The offset after the last record that was read."""
        self.may_be_deleted = False
        """Whether a fault has deleted segments."""

    async def start(self) -> None:
        """Start the clients, and return when records have been read."""
        configs = {"segment.bytes": "2048", "retention.ms": "-1"}
        await create_topic(self.world, self._place.topic, 1, replicas=self.setup.replicas, **configs)
        for host, work in zip(self.clients, (self._write(), self._read()), strict=False):
            self._tasks.append(self.world.spawn(host, work))
        await until(self._has_read, within_s=PATIENCE_S)

    async def finish(self) -> list[str]:
        """Write no more, let the reader read all, and compare the log with the acknowledged records."""
        place = self._place
        await cancel(self._tasks.pop(0))
        await until(lambda: not self._waiting, within_s=PATIENCE_S)
        await self._producer.close()
        async with self.world.consumer("auditor", **CLIENTS) as consumer, asyncio.timeout(PATIENCE_S):
            consumer.assign([place])
            start = (await consumer.beginning_offsets([place]))[place]
            end = (await consumer.end_offsets([place]))[place]
            consumer.seek(place, start)
            found: dict[int, bytes] = {}
            while await consumer.position(place) < end:
                found |= {record.offset: record.value or b"" for record in await consumer.poll(1_000)}
        # Any record, even the last, may be deleted before the reader gets it.
        await until(lambda: self._has_read(end) or self._log_start() >= end, within_s=PATIENCE_S)
        await cancel(*self._tasks)
        await self._consumer.close()
        return self._errors_of_start(start) + [
            f"{place} has {found.get(offset)!r} at {offset}, and not {value!r}"
            for offset, value in self._acknowledged.items()
            if offset >= start and found.get(offset) != value
        ]

    def _has_read(self, end: int = 1) -> bool:
        raise_failures(self._tasks)
        return self._next >= end

    def _errors_of_start(self, start: int) -> list[str]:
        is_wrong = start and not self.may_be_deleted
        return [f"the log of {self._place} starts at {start}, and nothing was deleted"] if is_wrong else []

    async def _write(self) -> None:
        chance, number = self.world.simulation.entropy(self.clients[0]), 0
        await self._producer.start()
        while True:
            value = b"%0100d" % number
            delivery = await self._producer.send(self._place.topic, value, partition=0)
            self._waiting.add(delivery)
            delivery.add_done_callback(partial(self._note, value))
            number += 1
            await asyncio.sleep(chance.choice((0.0, 0.05, 0.3)))

    def _note(self, value: bytes, done: "asyncio.Future[Any]") -> None:
        self._waiting.discard(done)
        if not done.cancelled() and done.result().offset >= 0:
            self._acknowledged[done.result().offset] = value

    async def _read(self) -> None:
        chance = self.world.simulation.entropy(self.clients[1])
        await self._consumer.start()
        self._consumer.assign([self._place])
        while True:
            self._note_logs()
            records = await self._consumer.poll(1_000)
            self._note_logs()  # a broker may have started meanwhile
            for record in records:
                # A position that a leader has deleted is reset, perhaps to the start of a next leader that has not.
                start = self._log_start()
                if record.offset < self._next >= start or self._next < record.offset > start:
                    raise BrokenPromiseError(f"a reader of {self._place} got {record.offset}, and not {self._next}")
                self._next = record.offset + 1
            await asyncio.sleep(chance.choice((0.0, 0.5, 3.0)))

    def _note_logs(self) -> None:
        logs = (broker.logs.get(self._place) for broker in self.world.running.values())
        self._logs |= dict.fromkeys(log for log in logs if log is not None)

    def _log_start(self) -> int:
        """Return the highest log start offset of a replica, also of brokers that have been killed."""
        return max(log.log_start_offset for log in self._logs)
