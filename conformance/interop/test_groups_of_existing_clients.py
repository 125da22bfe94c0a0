"""Groups of existing clients: members join and leave, every partition has one owner, nothing is lost (M6)."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from conformance.interop.existing_clients import DEADLINE_S
from conformance.interop.group_members import (
    WALK_PARTITIONS,
    AiokafkaMember,
    ConfluentMember,
    Join,
    KafkaPythonMember,
    settle,
    walk,
    writer,
)
from odradek.testing import eventually

PARTITIONS: Final = 6
ALL: Final = set(range(PARTITIONS))
LIBRARIES: Final[dict[str, tuple[Join, tuple[str, ...]]]] = {
    "confluent-kafka": (ConfluentMember, ("range", "roundrobin", "cooperative-sticky")),
    "kafka-python": (KafkaPythonMember, ("range", "roundrobin", "sticky", "cooperative-sticky")),
    "aiokafka": (AiokafkaMember, ("range", "roundrobin", "sticky")),
}
"""The members of each library, and the assignors that it has."""


@pytest.fixture
def written(servers: str, topic: str) -> Iterator[Callable[[int], list[str]]]:
    with writer(servers, topic, PARTITIONS) as write:
        yield write


@pytest.mark.parametrize(
    ("library", "assignor"), [(library, each) for library, (_, assignors) in LIBRARIES.items() for each in assignors]
)
def test_members_join_and_leave_and_each_partition_has_one_owner(
    servers: str, topic: str, library: str, assignor: str
) -> None:
    """M3, M6. The sticky assignors share what a member owned; a cooperative one does not stop the others."""
    with writer(servers, topic, WALK_PARTITIONS) as write:
        values, broadcast = walk(servers, topic, assignor, [LIBRARIES[library][0]] * 4, write)
    assert sorted(broadcast) == sorted(values)


def test_a_member_that_does_not_poll_is_replaced_and_can_rejoin(
    servers: str, topic: str, written: Callable[[int], list[str]]
):
    """M6. Not polled beyond `max.poll.interval.ms`, librdkafka leaves; its partitions move."""
    values = written(30)
    silent = ConfluentMember(servers, topic, topic, max_poll_interval_ms=6000)
    settle([silent], [6])
    other = ConfluentMember(servers, topic, topic)

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
    # On a thread of its own: kafka-python discards a join that completes between two polls, and joins again; polled in
    # turn with another member, on a busy machine, it makes one rebalance follow the other.
    theirs = KafkaPythonMember(servers, topic, topic, "range")
    ours = ConfluentMember(servers, topic, topic, "roundrobin,range")
    settle([ours, theirs], [3, 3])
    theirs.close()
    settle([ours], [6])
    assert ours.owned() == ALL
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
