"""Idempotent producers and readers of one topic, and the check that no record is lost, doubled or reordered."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from odradek.clients import Consumer, Producer
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.histories import History, Send, verdict
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import NEVER_MS, Setup
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "t"


class RecordingProducer:
    """A producer that sends `burst` records to each partition in turn until it is stopped, and records the outcomes."""

    def __init__(
        self,
        world: World,
        history: History,
        host: str,
        *,
        topic: str = TOPIC,
        partitions: int = 2,
        burst: int = 1,
        **settings: Any,
    ) -> None:
        self._topic = topic
        self._world = world
        self._history = history
        self._host = host
        self._partitions = partitions
        self._burst = burst
        settings = {**CLIENTS, "delivery_timeout_ms": NEVER_MS, **settings}
        self._may_expire = settings["delivery_timeout_ms"] < NEVER_MS
        self._producer: Producer = world.producer(host, **settings)
        self._chance = world.simulation.entropy(host)
        self._sending: asyncio.Task[None] | None = None
        self.waiting: set[asyncio.Future[Any]] = set()
        self.errors: list[str] = []

    async def start(self) -> None:
        with self._world.simulation.on(self._host):
            await self._producer.start()
            self._sending = asyncio.create_task(self._send(), name=self._host)

    async def stop(self) -> None:
        """Send no more, wait for the answers, and close."""
        assert self._sending is not None
        await cancel(self._sending)
        try:
            await until(lambda: not self.waiting, within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            raise BrokenPromiseError(f"{len(self.waiting)} records of {self._host} are never answered") from None
        await self._producer.close()

    async def _send(self) -> None:
        number = 0
        while True:
            place = TopicPartition(self._topic, number // self._burst % self._partitions)
            if len(self.waiting) < 100:
                value = b"%s-%d" % (self._host.encode(), number)
                send = self._history.send(self._host, place, value, now=self._world.now_s)
                padding = bytes(self._chance.choice((0, 0, 300, 900)))  # batches that span sectors may tear
                delivery = await self._producer.send(self._topic, send.value, key=padding, partition=place.partition)
                self.waiting.add(delivery)
                delivery.add_done_callback(partial(self._note, send))
                number += 1
                if number % self._burst:
                    continue
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.5)))

    def _note(self, send: Send, done: "asyncio.Future[Any]") -> None:
        self.waiting.discard(done)
        if not done.cancelled() and done.exception() is None:
            offset = done.result().offset
            send.acknowledge(offset if offset >= 0 else None, now=self._world.now_s)
        elif not done.cancelled() and not (self._may_expire and _is_timeout(done.exception())):
            self.errors.append(f"{send.value!r} of {self._host} is not delivered: {done.exception()}")


def _is_timeout(error: BaseException | None) -> bool:
    return isinstance(error, KafkaError) and error.code == ErrorCode.request_timed_out


class RecordingConsumer:
    """A consumer that reads all partitions from their beginning."""

    def __init__(
        self, world: World, history: History, host: str, places: Sequence[TopicPartition], **settings: Any
    ) -> None:
        self._world = world
        self._history = history
        self._host = host
        self._places = places
        settings = {"auto_offset_reset": "none", **READERS, **settings}
        self._consumer: Consumer = world.consumer(host, **settings)
        self._polling: asyncio.Task[None] | None = None
        self.next_offset: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        with self._world.simulation.on(self._host):
            await self._consumer.start()
            self._polling = asyncio.create_task(self._poll(), name=self._host)

    async def stop(self) -> None:
        assert self._polling is not None
        await cancel(self._polling)
        await self._consumer.close()

    def has_read(self, place: TopicPartition, log: Sequence[tuple[int, bytes]]) -> bool:
        """Return whether it has read the partition, whose records are `log`, to its end. Raise a check's failure."""
        assert self._polling is not None
        raise_failures([self._polling])
        return self._has_read(place, log)

    def _has_read(self, place: TopicPartition, log: Sequence[tuple[int, bytes]]) -> bool:
        return self.next_offset.get(place, 0) >= len(log)

    async def read_up_to(self, place: TopicPartition, log: Sequence[tuple[int, bytes]]) -> None:
        """Let virtual time pass until `has_read`, or raise `BrokenPromiseError`."""
        try:
            await until(partial(self.has_read, place, log), within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            read = self.next_offset.get(place, 0)
            raise BrokenPromiseError(f"{self._host} never reads {place} up to {len(log)}; it is at {read}") from None

    async def _poll(self) -> None:
        self._consumer.assign(self._places)
        for place in self._places:
            self._consumer.seek(place, 0)
        while True:
            await self._read()

    async def _read(self) -> None:
        records = await self._consumer.poll(1_000)
        ends = {place: self._committed(place) for place in self._places} if records else {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            if record.offset >= (end := ends[place]):
                raise BrokenPromiseError(
                    f"{self._host} read offset {record.offset} of {place}, which is committed up to {end}"
                )
            self._note(place, record.offset, record.value or b"")

    def _note(self, place: TopicPartition, offset: int, value: bytes) -> None:
        self._history.poll(self._host, place, offset, value)
        self.next_offset[place] = offset + 1

    def _committed(self, place: TopicPartition) -> int:
        """Return the highest high watermark of a leader, also of brokers that have been killed."""
        return max((each.high_watermark for each in self._world.leaders if each.topic_partition == place), default=0)


class Records(Workload):
    """Two producers, one of which lingers and may not be idempotent, and a reader."""

    clients: ClassVar[Sequence[str]] = ("writer-0", "writer-1", "reader-0")
    topics: ClassVar[Sequence[str]] = (TOPIC,)
    topic_config: ClassVar[Mapping[str, str]] = {}

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        (topic,) = self.topics
        *writers, reader = self.clients
        self.history = History()
        self._places = [TopicPartition(topic, number) for number in range(setup.partitions)]
        settings: dict[str, Any] = {
            "topic": topic,
            "partitions": setup.partitions,
            "burst": setup.burst,
            "batch_size": setup.batch_size,
            "request_timeout_ms": setup.request_timeout_ms,
            "delivery_timeout_ms": setup.delivery_timeout_ms,
        }
        self._producers = [
            RecordingProducer(
                world, self.history, host, linger_ms=linger_ms, enable_idempotence=is_idempotent, **settings
            )
            for host, linger_ms, is_idempotent in zip(writers, (5, 20), (True, setup.is_idempotent), strict=True)
        ]
        self.history.careless |= set() if setup.is_idempotent else {writers[-1]}
        self._consumer = self._make_reader(reader)

    def _make_reader(self, host: str) -> RecordingConsumer:
        self.history.thorough.add(host)
        return RecordingConsumer(self.world, self.history, host, self._places, client_rack=self.setup.rack)

    async def start(self) -> None:
        setup = self.setup
        config = {"max.message.bytes": str(setup.message_bytes), **self.topic_config}
        await create_topic(self.world, self._places[0].topic, setup.partitions, replicas=setup.replicas, **config)
        for producer in self._producers:
            await producer.start()
        await self._consumer.start()
        await until(lambda: self.history.acknowledged() > 8, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Stop the producers, let the reader read all, and compare the history with the logs."""
        for producer in self._producers:
            await producer.stop()
        logs = await self.world.read_records(self._places[0].topic, self.setup.partitions)
        for place in self._places:
            log = [(record.offset, record.value or b"") for record in logs[place.partition]]
            await self._consumer.read_up_to(place, log)
            self.history.audit(place, log)
        await self._consumer.stop()
        errors = [error for producer in self._producers for error in producer.errors]
        return errors + verdict(self.history).splitlines()
