"""M7. librdkafka's and Kafka's own consumers with `group.protocol=consumer` (KIP-848) in groups of our brokers."""

import json
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.peers.java_member import JavaMember
from conformance.peers.java_members import java_members
from conformance.peers.kafka_tools import tool
from odradek.cli import main
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

TOOL: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS: Final = 6
WITHIN_S: Final = 90.0
OPTIONS: Final = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "zookeeper.session.timeout.ms": "3000",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "3",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServedBroker]]:
    """Three brokers over one tree; the first is the controller, and no test kills it."""
    folder = tmp_path_factory.mktemp("brokers")
    found = [
        ServedBroker(
            folder / f"broker-{number}",
            metadata=f"sqlite:///{folder}/metadata.sqlite",
            options=OPTIONS,
            arguments=("--broker-id", str(number)),
        )
        for number in range(3)
    ]
    for broker in found:
        broker.start()
    yield found
    for broker in found:
        broker.kill()
        assert "Traceback" not in broker.errors.read_text()


@pytest.fixture(scope="module")
def servers(brokers: list[ServedBroker]) -> str:
    return ",".join(broker.bootstrap_servers for broker in brokers)


@pytest.fixture
def java() -> Iterator[list[JavaMember]]:
    """Members that do not outlive the test."""
    started: list[JavaMember] = []
    yield started
    for member in started:
        with suppress(ProcessLookupError):
            member.end(signal.SIGKILL)


class Members:
    """Consumers of librdkafka, and the positions of the records that any of them read."""

    def __init__(self, servers: str, group: str) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self.running: list[Any] = []
        self.seen: set[tuple[str, int, int]] = set()

    def join(self, *topics: str, **settings: Any) -> Any:
        consumer = confluent_kafka.Consumer(self._settings | settings)
        consumer.subscribe(list(topics))
        self.running.append(consumer)
        return consumer

    def poll(self) -> None:
        for consumer in self.running:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.add((message.topic(), message.partition(), message.offset()))
                self._commit(consumer, message)

    def _commit(self, consumer: Any, message: Any) -> None:
        """Commit; the epoch may have changed since the last heartbeat, and then a later commit does it."""
        try:
            consumer.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.STALE_MEMBER_EPOCH:
                raise

    def close(self) -> None:
        for consumer in self.running:
            consumer.close()
        self.running.clear()


@pytest.fixture
def members(servers: str) -> Iterator[Members]:
    found = Members(servers, f"g-{uuid.uuid4().hex}")
    yield found
    found.close()


def make_topic(servers: str, *, prefix: str = "t", replicas: int = 1) -> str:
    name = f"{prefix}-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, replicas)])[name].result(30)
    return name


def fill(servers: str, topic: str, count: int = 60) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"value", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def described(servers: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": servers})
    return admin.describe_consumer_groups([group], request_timeout=30)[group].result()


def shares(servers: str, members: Members, group: str, expected: list[int]) -> Callable[[], bool]:
    """Return whether a stable group's members have so many partitions, the most first."""

    def check() -> bool:
        for _ in range(5):
            members.poll()
        with suppress(confluent_kafka.KafkaException):
            found = described(servers, group)
            counts = sorted((len(each.assignment.topic_partitions) for each in found.members), reverse=True)
            return found.state is confluent_kafka.ConsumerGroupState.STABLE and counts == expected
        return False

    return check


def group_of(members: Members) -> str:
    return str(members._settings["group.id"])


def test_members_of_librdkafka_join_and_leave_and_no_record_is_skipped(servers: str, members: Members) -> None:
    topic, group = make_topic(servers), group_of(members)
    fill(servers, topic)
    for expected in ([6], [3, 3], [2, 2, 2]):
        members.join(topic)
        assert eventually(shares(servers, members, group, expected), within_s=WITHIN_S)
    fill(servers, topic)
    members.running.pop(0).close()
    assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S)
    assert eventually(lambda: members.poll() or len(members.seen) == 120, within_s=WITHIN_S)


def test_java_and_librdkafka_share_a_group_and_kafkas_tool_shows_it(
    servers: str, members: Members, java: list[JavaMember]
) -> None:
    topic, group = make_topic(servers), group_of(members)
    fill(servers, topic)
    java += [JavaMember(servers, topic, group, group_protocol="consumer") for _ in range(2)]
    members.join(topic)
    assert eventually(shares(servers, members, group, [2, 2, 2]), within_s=WITHIN_S)
    shown = tool(TOOL, "--bootstrap-server", servers, "--describe", "--group", group, "--members", "--verbose")
    assert shown.count(topic) == 3 * 2, shown  # the present and the target assignment of each member
    java[0].end(signal.SIGKILL)
    assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S)
    java[1].end(signal.SIGTERM)
    assert eventually(shares(servers, members, group, [6]), within_s=WITHIN_S)


def test_a_regular_expression_is_resolved_by_the_coordinator_and_follows_new_topics(
    servers: str, members: Members
) -> None:
    prefix, group = f"logs-{uuid.uuid4().hex}", group_of(members)
    make_topic(servers, prefix=prefix)
    members.join(f"^{prefix}.*")
    assert eventually(shares(servers, members, group, [6]), within_s=WITHIN_S)
    make_topic(servers, prefix=prefix)
    assert eventually(shares(servers, members, group, [12]), within_s=WITHIN_S)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker without others."""
    broker = ServedBroker(tmp_path / "alone", options=OPTIONS | {"offsets.topic.replication.factor": "1"})
    broker.start()
    yield broker
    broker.kill()
    assert "Traceback" not in broker.errors.read_text()


def test_java_and_librdkafka_subscribe_by_expressions_on_one_broker(alone: ServedBroker, tmp_path: Path) -> None:
    """M7. Topics that are created later are found, and a member takes over from the other library's."""
    servers = alone.bootstrap_servers
    members = Members(servers, f"g-{uuid.uuid4().hex}")
    group = group_of(members)
    make_topic(servers, prefix="logs")
    with java_members(servers, tmp_path / "members.err") as java, closing(members):
        java_member = java(servers, group, "logs-.*", "consumer")
        members.join("^logs-.*")
        assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S), described(servers, group)
        make_topic(servers, prefix="logs")
        make_topic(servers, prefix="other")
        assert eventually(shares(servers, members, group, [6, 6]), within_s=WITHIN_S), described(servers, group)
        java_member.close()
        assert eventually(shares(servers, members, group, [12]), within_s=WITHIN_S), described(servers, group)


def test_a_static_member_restarts_without_a_rebalance_of_others(servers: str, members: Members) -> None:
    topic, group = make_topic(servers), group_of(members)
    static = members.join(topic, **{"group.instance.id": "i"})
    members.join(topic)
    assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S)
    assert eventually(lambda: members.poll() or len(static.assignment()) == 3, within_s=WITHIN_S)
    had = sorted(each.partition for each in static.assignment())
    members.running.remove(static)
    static.close()
    again = members.join(topic, **{"group.instance.id": "i"})
    assert eventually(lambda: members.poll() or len(again.assignment()) == 3, within_s=WITHIN_S)
    assert sorted(each.partition for each in again.assignment()) == had


def test_a_group_outlives_its_coordinator(brokers: list[ServedBroker], servers: str, members: Members) -> None:
    topic, group = make_topic(servers, replicas=3), group_of(members)
    for _ in range(2):
        members.join(topic)
    assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S)
    fill(servers, topic)
    dead = brokers[coordinator(servers, group)]
    dead.kill()
    assert eventually(lambda: members.poll() or len(members.seen) == 60, within_s=WITHIN_S)
    dead.start()
    fill(servers, topic)
    assert eventually(lambda: members.poll() or len(members.seen) == 120, within_s=WITHIN_S)
    assert eventually(shares(servers, members, group, [3, 3]), within_s=WITHIN_S)


def coordinator(servers: str, group: str) -> int:
    """Return the id of a group's coordinator."""
    with BlockingWireClient(servers.split(",", maxsplit=1)[0]) as client:
        found = client.ask(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0}, 2)
    return int(found.node_id)


def test_our_command_line_lists_the_group_with_its_kind(servers: str, members: Members) -> None:
    topic, group = make_topic(servers), group_of(members)
    members.join(topic)
    assert eventually(shares(servers, members, group, [6]), within_s=WITHIN_S)
    done = CliRunner().invoke(main, ["groups", "list", "--bootstrap-server", servers, "--json"])
    listed = {each["group_id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert (listed[group]["group_state"], listed[group]["group_type"]) == ("Stable", "consumer")
    done = CliRunner().invoke(main, ["groups", "members", group, "--bootstrap-server", servers, "--json"])
    (member,) = map(json.loads, done.stdout.splitlines())
    assert len(member["assignment"]) == PARTITIONS
