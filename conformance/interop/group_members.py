"""Members of groups behind the same calls, of three libraries, and SPEC 4's walk from one member to four and back.

A member commits what it has read. A commit that a rebalance overtakes is refused, as by Kafka's broker; a cooperative
member, which keeps its partitions while it rejoins, meets that on a busy machine. Its messages are read again.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeVar

import aiokafka
import aiokafka.coordinator.assignors.range
import aiokafka.coordinator.assignors.roundrobin
import aiokafka.coordinator.assignors.sticky.sticky_assignor
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.coordinator.assignors.cooperative_sticky
import kafka.coordinator.assignors.range
import kafka.coordinator.assignors.roundrobin
import kafka.coordinator.assignors.sticky.sticky_assignor
import kafka.errors

from conformance.interop.existing_clients import CLIENTS
from odradek.clients import Consumer
from odradek.model import ErrorCode, KafkaError
from odradek.testing import eventually

T = TypeVar("T")
DEADLINE_S: Final = 60.0
WALK_PARTITIONS: Final = 3
SESSION_MS: Final = 6000
HEARTBEAT_MS: Final = 100
OVERTAKEN: Final = frozenset(
    {confluent_kafka.KafkaError.ILLEGAL_GENERATION, confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS}
)
REFUSED_COMMITS: Final = frozenset({ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress})
_POLL_MS: Final = 200
_KAFKA_PYTHON: Final = {
    "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    "sticky": kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
    "cooperative-sticky": kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor,
}
_AIOKAFKA: Final = {
    "range": aiokafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    "sticky": aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
}


class GroupMember:
    """A member with what it has read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def owned(self) -> set[int]:
        """Return the partitions of its topic that it owns."""
        raise AssertionError

    def poll(self) -> None:
        """Read and commit what is there; a member with a thread of its own has nothing to do here."""

    def close(self) -> None:
        """Leave the group."""
        raise AssertionError


Join = Callable[[str, str, str, str], GroupMember]
"""Has a new member join: bootstrap servers, group, topic, name of the assignor."""


class ConfluentMember(GroupMember):
    """confluent-kafka, which is librdkafka."""

    def __init__(self, servers: str, group: str, topic: str, assignor: str = "", **settings: Any) -> None:
        super().__init__()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "enable.auto.commit": False,
                **({"partition.assignment.strategy": assignor} if assignor else {}),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic])
        self._is_closed = False

    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def poll(self) -> None:
        for message in [] if self._is_closed else self._consumer.consume(100, 0.05):
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._MAX_POLL_EXCEEDED
                continue
            self.read.append(message.value().decode())
            try:
                self._consumer.commit(message=message, asynchronous=False)
            except confluent_kafka.KafkaException as refused:
                if refused.args[0].code() not in OVERTAKEN:
                    raise

    def close(self) -> None:
        self._is_closed = True
        self._consumer.close()


class KafkaPythonMember(GroupMember):
    """kafka-python, on a thread of its own: a poll waits for the other members of a rebalance."""

    def __init__(self, servers: str, group: str, topic: str, assignor: str) -> None:
        super().__init__()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[_KAFKA_PYTHON[assignor]],
        )
        self._consumer.subscribe([topic])
        # A leader that joins before it knows the topic joins again when it does; if a poll ends before that join, it
        # forgets the join, and stays without assignment and heartbeats.
        eventually(lambda: self._consumer.partitions_for_topic(topic), within_s=DEADLINE_S)
        self._owned: set[int] = set()
        self._is_closing = threading.Event()
        self._executor = ThreadPoolExecutor(1)
        self._reading = self._executor.submit(self._read)

    def owned(self) -> set[int]:
        return self._owned

    def poll(self) -> None:
        if self._reading.done():
            self._reading.result()

    def close(self) -> None:
        self._is_closing.set()
        self._executor.shutdown()
        self._reading.result()

    def _read(self) -> None:
        try:
            while not self._is_closing.is_set():
                polled = self._consumer.poll(_POLL_MS)
                self._owned = {place.partition for place in self._consumer.assignment()}
                self.read += [record.value.decode() for records in polled.values() for record in records]
                if polled:
                    # A rebalance began meanwhile: the next poll takes part in it, and reads again.
                    with suppress(kafka.errors.CommitFailedError, kafka.errors.RebalanceInProgressError):
                        self._consumer.commit()
        finally:
            self._consumer.close()


class AsyncioMember(GroupMember):
    """A consumer on an event loop and a thread of its own: its start may wait for the other members."""

    def __init__(self, servers: str, group: str, topic: str, assignor: str) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._run(self._create(servers, group, topic, assignor))
        self._reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)

    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    async def _create(self, servers: str, group: str, topic: str, assignor: str) -> Any:
        """Return a consumer that has not joined yet."""
        raise AssertionError

    async def _read(self) -> None:
        """Join, and read until the consumer is stopped."""
        raise AssertionError

    async def _stop(self) -> None:
        """Leave the group, which ends `_read`."""
        await self._consumer.stop()

    def poll(self) -> None:
        if self._reading.done():
            self._reading.result()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._stop())
            self._reading.result(DEADLINE_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_S)
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)


class AiokafkaMember(AsyncioMember):
    """aiokafka."""

    async def _create(self, servers: str, group: str, topic: str, assignor: str) -> Any:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[_AIOKAFKA[assignor]],
        )

    async def _read(self) -> None:
        await self._consumer.start()
        with suppress(aiokafka.errors.ConsumerStoppedError):
            while True:
                message = await self._consumer.getone()
                self.read.append(message.value.decode())
                with suppress(aiokafka.errors.CommitFailedError, aiokafka.errors.RebalanceInProgressError):
                    await self._consumer.commit()


class OdradekMember(AsyncioMember):
    """Odradek's own consumer."""

    async def _create(self, servers: str, group: str, topic: str, assignor: str) -> Any:
        self._is_stopped = asyncio.Event()
        return Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=assignor,
        )

    async def _read(self) -> None:
        async with self._consumer:
            while not self._is_stopped.is_set():
                for record in await self._consumer.poll(_POLL_MS):
                    self.read.append(record.value.decode())
                    try:
                        await self._consumer.commit()
                    except KafkaError as refused:
                        if refused.code not in REFUSED_COMMITS:
                            raise

    async def _stop(self) -> None:
        self._is_stopped.set()
        await asyncio.wrap_future(self._reading)


@contextmanager
def writer(servers: str, topic: str, partitions: int) -> Iterator[Callable[[int], list[str]]]:
    """Create the topic; yield a call that writes so many more values to it, and returns all values so far."""
    CLIENTS[0].create(servers, topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    values: list[str] = []

    def write(count: int) -> list[str]:
        for _ in range(count):
            producer.produce(topic, f"{len(values)}", partition=len(values) % partitions)
            values.append(f"{len(values)}")
        assert producer.flush(DEADLINE_S) == 0
        return values

    yield write
    assert producer.flush(DEADLINE_S) == 0


def settle(members: Sequence[GroupMember], shares: list[int]) -> None:
    """Poll all until together they own every partition once, in shares of these sizes."""
    everything = set(range(sum(shares)))

    def settled() -> bool:
        for member in members:
            member.poll()
        owned = [member.owned() for member in members]
        return sorted(map(len, owned)) == sorted(shares) and set().union(*owned) == everything

    eventually(settled, within_s=DEADLINE_S, what=f"shares of {shares}")


def walk(
    servers: str, topic: str, assignor: str, joins: Sequence[Join], write: Callable[[int], list[str]]
) -> tuple[list[str], list[str]]:
    """Have four members join a group one by one, and three of them leave, in the same order.

    The topic has three partitions. `write` writes so many values to it, in turn to each partition, and returns all
    values so far. Every value reaches one member of the group. Return all values, and what the only member of another
    group has read meanwhile.
    """
    with ExitStack() as closing:

        def join(group: str, which: Join) -> GroupMember:
            member = which(servers, group, topic, assignor)
            closing.callback(member.close)
            return member

        def read_all(*readers: GroupMember) -> list[str]:
            """Return what they have read, once that is all."""

            def found() -> bool:
                for member in (*readers, other):
                    member.poll()
                return {value for member in readers for value in member.read} == set(values)

            eventually(found, within_s=DEADLINE_S, what=f"every value of {topic}")
            return [value for member in readers for value in member.read]

        other = join(f"{topic}.other", joins[0])
        values = write(WALK_PARTITIONS)
        members: list[GroupMember] = []
        for which, shares in zip(joins, ([3], [2, 1], [1, 1, 1], [1, 1, 1, 0]), strict=True):
            members.append(join(topic, which))
            settle(members, shares)
            if len(members) == WALK_PARTITIONS:
                read_all(*members)
                before = set(values)
                values = write(WALK_PARTITIONS)
                read_all(*members)
                # Earlier values may come again: a rebalance that began meanwhile makes clients refuse to commit.
                counts = [len(set(member.read) - before) for member in members]
                assert counts == [1, 1, 1], "unicast: each message goes to the owner of its partition"
        for number, shares in enumerate(([1, 1, 1], [2, 1], [3]), 1):
            members[number - 1].close()
            values = write(WALK_PARTITIONS)
            settle(members[number:], shares)
        read = read_all(*members)
        assert len(read) < len(values) * 1.5, "commits keep repetition small"
        return values, read_all(other)
