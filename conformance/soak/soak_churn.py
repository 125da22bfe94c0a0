"""Administrators' operations during a round, drawn from its seed: topics are created, extended, deleted, replicas
moved.

An operation that fails because of a fault is counted as an error. Confirmed ones are checked at the end: a created
topic exists, a deleted one does not. These topics get records too, which are audited like others.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import confluent_kafka

from conformance.soak.fault_clients import CLOCK, REQUEST_TIMEOUT_MS
from conformance.soak.soak_servers import BROKERS
from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.clients.admin.reassignments import ElectionType
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.histories import History

_PAUSE_S: Final = 0.5
_CALL_S: Final = 15.0
_MOST_TOPICS: Final = 6
_MOST_PARTITIONS: Final = 6
_RECORDS: Final = 20
_SETTINGS: Final = (
    ("retention.ms", ("3600000", "7200000")),
    ("segment.bytes", ("65536", "262144")),
    ("max.message.bytes", ("500000", "1048588")),
)
_BROKER_SETTINGS: Final = (("log.cleaner.threads", ("1", "2")), ("message.max.bytes", ("1048588", "2000000")))


class Churn:
    """Administers `servers` in a thread of its own until `stop`; `standing` are the topics that always are there."""

    def __init__(self, servers: str, standing: dict[str, int], history: History, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.created: dict[str, int] = {}
        """Topics that are known to be there, with the number of partitions that they have at least."""
        self.deleted: set[str] = set()
        self._standing = dict(standing)
        self._history = history
        self._chance = random.Random(f"{seed} churn")
        self._servers = servers
        self._number = 0
        self._records = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="churn", daemon=True)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2_000,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the operation that is being done; what was written may take its time."""
        self._stopping.set()
        self._thread.join(2 * _CALL_S)
        assert not self._thread.is_alive(), "the administrator does not end"

    def flush(self, within_s: float) -> None:
        """Wait until something is known of each record."""
        self._producer.flush(within_s)

    async def _run(self) -> None:
        operations: dict[str, tuple[Callable[[Admin], Awaitable[None]], int]] = {
            "create a topic": (self._create, 4),
            "delete a topic": (self._delete, 3),
            "add a partition": (self._grow, 2),
            "reassign a partition": (self._reassign, 5),
            "elect preferred leaders": (self._elect, 2),
            "configure a topic": (self._configure_topic, 2),
            "configure brokers": (self._configure_brokers, 1),
        }
        while not self._stopping.is_set():
            (name,) = self._chance.choices(list(operations), [weight for _, weight in operations.values()])
            try:
                async with asyncio.timeout(_CALL_S), Admin(self._servers, timeout_ms=10_000) as admin:
                    await operations[name][0](admin)
                self.done[name] += 1
            except (OdradekError, TimeoutError) as error:
                self.errors[f"{name}: {type(error).__name__}: {error}"[:200]] += 1
            self._write()
            await asyncio.to_thread(self._stopping.wait, _PAUSE_S)

    async def _create(self, admin: Admin) -> None:
        if len(self.created) >= _MOST_TOPICS:
            return
        name, partitions = f"churn-{self._number}", self._chance.randint(1, 3)
        self._number += 1
        await admin.create_topic(name, partitions=partitions, replication_factor=self._chance.choice((2, 3, 3)))
        self.created[name] = partitions

    async def _delete(self, admin: Admin) -> None:
        if self.created:
            name = self._chance.choice(sorted(self.created))
            del self.created[name]  # whatever the answer is, it may be gone
            await admin.delete_topics([name])
            self.deleted.add(name)

    async def _grow(self, admin: Admin) -> None:
        grown = {name: count for name, count in self.created.items() if count < _MOST_PARTITIONS}
        if grown:
            name = self._chance.choice(sorted(grown))
            await admin.create_partitions(name, grown[name] + 1)
            self.created[name] += 1

    async def _reassign(self, admin: Admin) -> None:
        places = [TopicPartition(name, number) for name, count in self._topics() for number in range(count)]
        moved = self._chance.sample(places, min(2, len(places)))
        targets = {place: self._chance.sample(range(len(BROKERS)), self._chance.choice((2, 3, 3))) for place in moved}
        await admin.alter_partition_reassignments(targets)

    async def _elect(self, admin: Admin) -> None:
        await admin.elect_leaders(ElectionType.PREFERRED)

    async def _configure_topic(self, admin: Admin) -> None:
        name, _ = self._chance.choice(self._topics())
        await self._configure(admin, ConfigResource(type=ConfigResourceType.TOPIC, name=name), _SETTINGS)

    async def _configure_brokers(self, admin: Admin) -> None:
        await self._configure(admin, ConfigResource(type=ConfigResourceType.BROKER, name=""), _BROKER_SETTINGS)

    async def _configure(self, admin: Admin, resource: ConfigResource, settings: Any) -> None:
        key, values = self._chance.choice(settings)
        change = Alteration(name=key, operation=AlterOperation.SET, value=self._chance.choice(values))
        await admin.alter_configs(resource, [change])

    def _topics(self) -> list[tuple[str, int]]:
        return sorted((self._standing | self.created).items())

    def _write(self) -> None:
        for name, partitions in self.created.items():
            for _ in range(_RECORDS):
                self._records += 1
                place = TopicPartition(name, self._chance.randrange(partitions))
                value = f"churn-{place.partition}-{self._records}".encode()
                send = self._history.send("churn", place, value, now=CLOCK.monotonic())
                try:
                    self._producer.produce(name, value, partition=place.partition, on_delivery=self._noting(send))
                except (BufferError, confluent_kafka.KafkaException) as error:
                    self.errors[f"write: {error}"[:200]] += 1
        self._producer.poll(0)

    def _noting(self, send: Any) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                send.acknowledge(message.offset(), now=CLOCK.monotonic())
            else:
                self.errors[f"write: {error}"[:200]] += 1

        return note
