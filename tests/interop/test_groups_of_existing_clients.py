"""Groups of existing clients: members join and leave, every partition has one owner, nothing is lost (M6)."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import confluent_kafka
import kafka
import pytest
from existing_clients import CLIENTS, DEADLINE_S

from odradek.testing import eventually

PARTITIONS: Final = 6
ALL: Final = set(range(PARTITIONS))
OVERTAKEN: Final = frozenset(
    {confluent_kafka.KafkaError.ILLEGAL_GENERATION, confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS}
)
"""The errors of a commit that a rebalance overtook, as with Kafka's broker. A cooperative member, which keeps its
partitions while it rejoins, gets them on a busy machine."""


class Member:
    """A confluent-kafka consumer of a group, with what it owns and what it read."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.read: list[str] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic])

    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def poll(self) -> None:
        """Read what is there and commit it; what a rebalance overtakes is not committed, and may be read again."""
        for message in self._consumer.consume(100, 0.05):
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
        self._consumer.close()


def settle(members: list[Member], shares: list[int]) -> None:
    """Poll all until together they own every partition once, in shares of these sizes."""

    def settled() -> bool:
        for member in members:
            member.poll()
        owned = [member.owned() for member in members]
        return sorted(map(len, owned)) == sorted(shares) and set().union(*owned) == ALL

    eventually(settled, within_s=DEADLINE_S, what=f"shares of {shares}")


@pytest.fixture
def written(servers: str, topic: str) -> Iterator[Callable[[int], list[str]]]:
    """A topic, and a call that writes so many more values to it and returns all values so far."""
    CLIENTS[0].create(servers, topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    values: list[str] = []

    def write(count: int) -> list[str]:
        for _ in range(count):
            producer.produce(topic, f"{len(values)}", partition=len(values) % PARTITIONS)
            values.append(f"{len(values)}")
        assert producer.flush(DEADLINE_S) == 0
        return values

    yield write
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_join_and_leave_and_each_partition_has_one_owner(
    servers: str, topic: str, written: Callable[[int], list[str]], strategy: str
):
    """M3, M6. With three assignors of librdkafka's, the last of which moves partitions without stopping the others."""
    with ExitStack() as closing:
        members: list[Member] = []

        def join() -> Member:
            members.append(Member(servers, topic, topic, partition_assignment_strategy=strategy))
            closing.callback(members[-1].close)
            return members[-1]

        written(60)
        first = join()
        settle([first], [6])
        second = join()
        settle([first, second], [3, 3])
        written(60)
        third = join()
        settle([first, second, third], [2, 2, 2])
        first.close()
        written(60)
        settle([second, third], [3, 3])
        second.close()
        values = written(60)
        settle([third], [6])

        def all_read() -> bool:
            third.poll()
            return {value for member in members for value in member.read} == set(values)

        assert eventually(all_read, within_s=DEADLINE_S)
        assert sum(len(member.read) for member in members) < len(values) * 1.5  # commits keep repetition small


def test_a_member_that_does_not_poll_is_replaced_and_can_rejoin(
    servers: str, topic: str, written: Callable[[int], list[str]]
):
    """M6. Not polled beyond `max.poll.interval.ms`, librdkafka leaves; its partitions move."""
    values = written(30)
    silent = Member(servers, topic, topic, max_poll_interval_ms=6000)
    settle([silent], [6])
    other = Member(servers, topic, topic)

    def moved() -> bool:
        other.poll()
        return other.owned() == ALL and set(silent.read + other.read) == set(values)

    assert eventually(moved, within_s=DEADLINE_S)
    # Not closed before it has polled again: librdkafka's close waits for ever, now and then, if it has not.
    settle([silent, other], [3, 3])
    other.close()
    silent.close()


def test_clients_of_two_libraries_share_a_group(servers: str, topic: str, written: Callable[[int], list[str]]):
    """M6. A vote between their lists of assignors finds the one that both have."""
    written(30)
    theirs = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
    )
    ours = Member(servers, topic, topic, partition_assignment_strategy="roundrobin,range")

    def shared() -> bool:
        ours.poll()
        theirs.poll(50)
        owned = {place.partition for place in theirs.assignment()}
        return len(owned) == len(ours.owned()) == 3 and owned | ours.owned() == ALL

    assert eventually(shared, within_s=DEADLINE_S)
    theirs.close()
    settle([ours], [6])
    ours.close()


@pytest.mark.needs("kcat")
def test_kcat_reads_as_a_member_and_the_next_one_continues_at_its_offsets(
    servers: str, topic: str, written: Callable[[int], list[str]]
):
    """M6, M8. kcat's own balanced consumer."""

    def kcat(count: int) -> list[str]:
        options = ["-X", "auto.offset.reset=earliest", "-c", str(count), "-q", "-f", r"%s\n"]
        command = ["kcat", "-b", servers, "-G", topic, *options, topic]
        return subprocess.run(
            command, check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout.split()

    values = written(30)
    read = kcat(20) + kcat(10)
    assert sorted(read, key=int) == values
