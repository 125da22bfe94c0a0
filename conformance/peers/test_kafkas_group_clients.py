"""M6. Kafka's own consumers and its group tool, beside librdkafka, in groups that our broker coordinates."""

import asyncio
import json
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from conformance.interop.group_members import (
    WALK_PARTITIONS,
    AiokafkaMember,
    ConfluentMember,
    Join,
    KafkaPythonMember,
    OdradekMember,
    walk,
    writer,
)
from conformance.peers import kafka_tools
from conformance.peers.java_member import JavaMember
from conformance.peers.java_members import JavaMembers, java_members
from odradek.cli import main
from odradek.clients import Admin, Consumer, Producer
from odradek.spark.local.java import find_java
from odradek.testing import eventually

pytestmark = pytest.mark.needs("kafka")

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS = 6
WITHIN_S = 90.0


@pytest.fixture
def members() -> Iterator[list[JavaMember]]:
    """Members that do not outlive the test."""
    started: list[JavaMember] = []
    yield started
    for member in started:
        with suppress(ProcessLookupError):
            member.end(signal.SIGKILL)


@pytest.fixture
def topic(kafka: Any) -> str:
    """A topic with a record in each partition."""
    name = f"t-{uuid.uuid4().hex}"

    async def create() -> None:
        async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            await admin.create_topic(name, partitions=PARTITIONS)
        async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for number in range(PARTITIONS):
                await producer.send(name, b"value", partition=number)
            await producer.flush()

    asyncio.run(create())
    return name


def ours(servers: str, *arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["groups", *arguments, "--bootstrap-server", servers, "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()] if done.exit_code == 0 else []


def sizes(servers: str, group: str) -> list[int]:
    """Return how many partitions each member has, the most first; nothing while the group is not stable."""
    stable = {each["group_id"] for each in ours(servers, "list", "--state", "Stable")}
    if group not in stable:
        return []
    found = ours(servers, "members", group)
    return sorted((len(each["assignment"]) for each in found), reverse=True)


def test_java_and_librdkafka_share_a_group_and_a_dead_member_is_replaced(
    kafka: Any, topic: str, members: list[JavaMember]
) -> None:
    servers, group = kafka.bootstrap_servers, f"g-{uuid.uuid4().hex}"
    strategy = "org.apache.kafka.clients.consumer.RangeAssignor"
    members += [JavaMember(servers, topic, group, partition_assignment_strategy=strategy) for _ in range(2)]
    librdkafka = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range",
        }
    )
    librdkafka.subscribe([topic])

    def is_shared(expected: list[int]) -> Callable[[], bool]:
        def check() -> bool:
            librdkafka.poll(0.2)
            return sizes(servers, group) == expected

        return check

    assert eventually(is_shared([2, 2, 2]), within_s=WITHIN_S)
    members[0].end(signal.SIGKILL)
    assert eventually(is_shared([3, 3]), within_s=WITHIN_S)
    members[1].end(signal.SIGTERM)
    assert eventually(is_shared([6]), within_s=WITHIN_S)
    librdkafka.close()
    causes = [each["cause"] for each in ours(servers, "history", group)]
    assert causes.count("session expired") == 1
    assert causes.count("left") == 2


def rebalances(servers: str, group: str, *, members: int) -> list[tuple[int, str]]:
    """Return generation and cause of each rebalance, once the journal has the one that left so many members."""
    found = ours(servers, "history", group)
    return [(each["generation"], each["cause"]) for each in found] if found and found[-1]["members"] == members else []


def test_a_static_java_member_comes_back_without_a_rebalance(kafka: Any, topic: str, members: list[JavaMember]) -> None:
    """KIP-345."""
    servers, group = kafka.bootstrap_servers, f"g-{uuid.uuid4().hex}"
    patient = {"session_timeout_ms": "60000"}
    members += [JavaMember(servers, topic, group, group_instance_id=name, **patient) for name in ("one", "two")]
    assert eventually(lambda: sizes(servers, group) == [3, 3], within_s=WITHIN_S)
    before = eventually(lambda: rebalances(servers, group, members=2), within_s=WITHIN_S)
    first_id = {each["group_instance_id"]: each["member_id"] for each in ours(servers, "members", group)}["one"]
    members[0].end(signal.SIGTERM)
    members.append(JavaMember(servers, topic, group, group_instance_id="one", **patient))

    def is_back() -> bool:
        found = {each["group_instance_id"]: each["member_id"] for each in ours(servers, "members", group)}
        return found.get("one") not in (None, first_id)

    assert eventually(is_back, within_s=WITHIN_S)
    assert sizes(servers, group) == [3, 3]
    assert rebalances(servers, group, members=2) == before


def test_kafkas_group_tool_lists_describes_resets_and_deletes(kafka: Any, topic: str) -> None:
    servers, group = kafka.bootstrap_servers, f"g-{uuid.uuid4().hex}"

    def tool(*arguments: str) -> str:
        return kafka_tools.tool(TOOL, "--bootstrap-server", servers, *arguments)

    tool("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    assert group in tool("--list").split()
    rows = [line.split()[:6] for line in tool("--describe", "--group", group).splitlines() if topic in line]
    assert rows == [[group, topic, str(number), "1", "1", "0"] for number in range(PARTITIONS)]
    tool("--reset-offsets", "--group", group, "--topic", f"{topic}:0,1", "--shift-by", "-1", "--execute")
    offsets = {each["partition"]: each["committed_offset"] for each in ours(servers, "offsets", group)}
    assert offsets == {number: 0 if number < 2 else 1 for number in range(PARTITIONS)}
    assert "Empty" in tool("--describe", "--group", group, "--state")
    tool("--delete-offsets", "--group", group, "--topic", f"{topic}:5")
    assert len(ours(servers, "offsets", group)) == PARTITIONS - 1
    assert "deletion of requested consumer groups" in tool("--delete", "--group", group).lower()
    assert group not in tool("--list").split()


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_our_consumer_shares_a_group_with_java_and_librdkafka(
    kafka: Any, topic: str, members: list[JavaMember], strategy: str
) -> None:
    """M3. The first member is ours and leads; librdkafka has no `sticky`."""
    servers, group = kafka.bootstrap_servers, f"g-{uuid.uuid4().hex}"
    java = "".join(word.capitalize() for word in strategy.split("-")) + "Assignor"
    settings = {"bootstrap.servers": servers, "group.id": group, "partition.assignment.strategy": strategy}

    async def scene() -> None:
        intervals: Any = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}
        async with (
            Admin(bootstrap_servers=servers) as admin,
            Consumer(
                topic, bootstrap_servers=servers, group_id=group, partition_assignment_strategy=strategy, **intervals
            ) as mine,
        ):
            others: list[Any] = []

            async def until(expected: list[int]) -> None:
                """Poll until the coordinator's assignments have these sizes, and ours has arrived."""
                async with asyncio.timeout(WITHIN_S):
                    while True:
                        await mine.poll(200)
                        for each in others:
                            await asyncio.to_thread(each.poll, 0.1)
                        found = await admin.describe_group(group)
                        assigned = [frozenset(each.assignment) for each in found.members]
                        if sorted(map(len, assigned)) == expected and mine.assignment() in assigned:
                            return

            await until([6])
            name = f"org.apache.kafka.clients.consumer.{java}"
            members.append(JavaMember(servers, topic, group, partition_assignment_strategy=name))
            await until([3, 3])
            kept = mine.assignment()
            if strategy != "sticky":
                others.append(confluent_kafka.Consumer(settings | {"heartbeat.interval.ms": 300}))
                others[0].subscribe([topic])
                await until([2, 2, 2])
                assert mine.assignment() < kept, "it had to give one partition up"
                kept = mine.assignment()
                await asyncio.to_thread(others.pop().close)
                await until([3, 3])
            assert mine.assignment() >= kept, "a member keeps its partitions when another leaves"

    asyncio.run(scene())
    # The Java member leads now, and has read what ours said.
    assert eventually(lambda: sizes(servers, group) == [6], within_s=WITHIN_S)


# ---- Groups of several libraries -------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[Join, ...]] = {
    "range": (ConfluentMember, KafkaPythonMember, AiokafkaMember),
    "roundrobin": (ConfluentMember, AiokafkaMember, KafkaPythonMember),
    "sticky": (AiokafkaMember, KafkaPythonMember, AiokafkaMember),
    "cooperative-sticky": (ConfluentMember, KafkaPythonMember, ConfluentMember),
}
"""Beside Kafka's, by assignor, the members of libraries that have it; each leads the group in its turn."""


@pytest.fixture(scope="module")
def java(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMembers]:
    if "jdk.compiler" not in find_java().identity:
        pytest.skip("java has no compiler: install a JDK")
    with java_members(kafka.bootstrap_servers, tmp_path_factory.mktemp("java") / "members.err") as members:
        yield members


@pytest.mark.parametrize("assignor", OTHERS)
@pytest.mark.parametrize("members", ["java", "mixed", "own"])
def test_members_of_all_libraries_share_the_partitions(
    kafka: Any, java: JavaMembers, assignor: str, members: str
) -> None:
    servers, topic = kafka.bootstrap_servers, f"walk.{members}.{assignor}"
    first, *others = OTHERS[assignor]
    joins = {
        "java": (java,) * 4,
        "mixed": (first, java, *others),
        "own": (OdradekMember, java, first, OdradekMember),
    }[members]
    with writer(servers, topic, WALK_PARTITIONS) as write:
        values, broadcast = walk(servers, topic, assignor, joins, write)
    assert sorted(broadcast) == sorted(values)
