"""Members of one group from three libraries, which come and go all the while.

Each commits what it has noted, so that the group gets every record at least once.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from conformance.soak.fault_clients import CLOCK, PACE_S, READERS, REQUEST_TIMEOUT_MS, WRITERS, Reader, Worker, Writer
from odradek.model import TopicPartition
from odradek.simulation.histories import History, longest_pause

GROUP: Final = "soak"
ENOUGH: Final = 10
"""Records of each client in each partition after which it counts as getting on."""
SESSION_TIMEOUT_MS: Final = 6_000
_LIVES_S: Final = (4.0, 20.0)
"""The shortest and the longest time that a member belongs to the group."""


class Member(Worker):
    """A member of the group `soak` for some seconds, again and again. `noted` has the offsets that all members got."""

    does = "member"

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        history: History,
        noted: dict[TopicPartition, set[int]],
        seed: int,
    ) -> None:
        super().__init__(servers, topic, partitions, history)
        self.noted = noted
        self._chance = random.Random(f"{seed} {self.kind}")
        self._assignments = 0
        self._until = 0.0

    def live(self) -> None:
        """Read and commit until stopped."""
        self._until = CLOCK.monotonic() + self._chance.uniform(*_LIVES_S)
        self.assigned()
        try:
            self.belong()
        except (
            confluent_kafka.KafkaException,
            aiokafka.errors.KafkaError,
            kafka.errors.KafkaError,
            asyncio.CancelledError,  # aiokafka's consumer, when it stops while it waits before it fetches again
        ) as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
            self.stopping.wait(PACE_S)

    def belong(self) -> None:
        """Be a member until `is_leaving`."""
        raise AssertionError

    @property
    def is_leaving(self) -> bool:
        """Whether this life is over."""
        return self.stopping.is_set() or CLOCK.monotonic() > self._until

    def assigned(self, *_: object) -> None:
        """Begin another reading, which starts at the last committed offsets."""
        self._assignments += 1

    def got(self, partition: int, offset: int, value: bytes) -> None:
        """A record came."""
        place = self.places[partition]
        self.history.poll(f"{self.name} of {GROUP}, assignment {self._assignments}", place, offset, value)
        self.noted[place].add(offset)


class ConfluentMember(Member):
    """confluent-kafka's."""

    kind = "confluent-kafka"

    def belong(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": GROUP,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "range",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self.topic], on_assign=self.assigned)
            while not self.is_leaving:
                messages = consumer.consume(500, 0.1)
                good = [message for message in messages if message.error() is None]
                for message in messages:
                    if message.error() is not None:
                        self.errors[str(message.error())[:200]] += 1
                for message in good:
                    self.got(message.partition(), message.offset(), message.value())
                if good:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            self.errors[str(error)[:200]] += 1


class KafkaPythonMember(Member):
    """kafka-python's."""

    kind = "kafka-python"

    def belong(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.servers.split(","),
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=[KafkaPythonRange],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=2 * SESSION_TIMEOUT_MS,
            metadata_max_age_ms=5_000,
        )
        try:
            consumer.subscribe([self.topic], listener=_KafkaPythonListener(self))
            while not self.is_leaving:
                polled = consumer.poll(timeout_ms=100)
                for records in polled.values():
                    for record in records:
                        self.got(record.partition, record.offset, record.value)
                if polled:
                    self._commit(consumer)
        finally:
            consumer.close(autocommit=False)

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit()
        except kafka.errors.KafkaError as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1


class AiokafkaMember(Member):
    """aiokafka's."""

    kind = "aiokafka"

    def belong(self) -> None:
        asyncio.run(self._belong())

    async def _belong(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=[AiokafkaRange],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=5_000,
        )
        await consumer.start()
        try:
            consumer.subscribe([self.topic], listener=_AiokafkaListener(self))
            while not self.is_leaving:
                polled = await consumer.getmany(timeout_ms=100)
                for records in polled.values():
                    for record in records:
                        self.got(record.partition, record.offset, record.value)
                if polled:
                    await self._commit(consumer)
        finally:
            await consumer.stop()

    async def _commit(self, consumer: Any) -> None:
        try:
            await consumer.commit()
        except aiokafka.errors.KafkaError as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned()


class _AiokafkaListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned()


MEMBERS: Final = (ConfluentMember, KafkaPythonMember, AiokafkaMember)


class Clients:
    """Writers and readers of all libraries on one topic, members of a group if they are added, and their history."""

    def __init__(
        self, servers: str, topic: str, partitions: int, *, isolations: Sequence[str] = ("read_uncommitted",)
    ) -> None:
        self.history = History()
        self._arguments = (servers, topic, partitions, self.history)
        self.noted = {TopicPartition(topic, number): set[int]() for number in range(partitions)}
        self.writers: list[Writer] = [make(*self._arguments) for make in WRITERS]
        self.readers: list[Reader] = [make(*self._arguments, isolation=each) for make in READERS for each in isolations]
        self.members: list[Member] = []

    def add_members(self, seed: int) -> None:
        """Have a group of members, which come and go by `seed`."""
        self.members = [make(*self._arguments, self.noted, seed) for make in MEMBERS]

    @property
    def workers(self) -> list[Worker]:
        return [*self.writers, *self.readers, *self.members]

    def start(self) -> None:
        """Let all of them begin."""
        for worker in self.workers:
            worker.start()

    def slow(self) -> Callable[[], list[str]]:
        """A function that names the clients that have not got on by `ENOUGH` records a partition since now."""
        wanted = {
            writer: {place: writer.acknowledged[place] + ENOUGH for place in writer.places} for writer in self.writers
        }
        to_read = {
            reader: {place: reader.next_offset[place] + ENOUGH for place in reader.places} for reader in self.readers
        }

        def slow() -> list[str]:
            for worker in self.workers:
                worker.check()
            stuck: list[tuple[str, Counter[TopicPartition], Mapping[TopicPartition, int]]] = [
                *((f"{each.kind} {each.does}", each.acknowledged, goal) for each, goal in wanted.items()),
                *((f"{each.kind} {each.does}", each.next_offset, goal) for each, goal in to_read.items()),
            ]
            return [
                f"{client} at {dict(reached)}, wanted {goal}"
                for client, reached, goal in stuck
                if any(reached[place] < count for place, count in goal.items())
            ]

        return slow

    def complaints(self) -> Counter[str]:
        """Count the errors that clients reported; they are no findings."""
        return Counter(
            {
                f"{worker.kind} {worker.does}: {error}": count
                for worker in self.workers
                for error, count in worker.errors.items()
            }
        )

    def pauses(self, **limits: float) -> dict[str, float]:
        """The longest time without an acknowledged write to some partition, by client, in seconds."""
        found = {}
        for writer in self.writers:
            names = {f"{writer.kind}.{life + 1}" for life in range(writer.lives)}
            pause = longest_pause(self.history, names, **limits)
            found[writer.kind] = 0.0 if pause is None else pause.seconds
        return found

    def abandon(self) -> None:
        """Let them end by themselves."""
        for worker in self.workers:
            worker.stopping.set()
