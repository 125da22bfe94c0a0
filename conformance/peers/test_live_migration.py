"""M7. Groups of librdkafka's and Kafka's consumers change their protocol under load, and no record is skipped."""

import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.peers.java_member import JavaMember
from odradek.cli import main
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

PARTITIONS: Final = 6
WITHIN_S: Final = 90.0
OPTIONS: Final = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three brokers over one tree."""
    folder = tmp_path_factory.mktemp("brokers")
    metadata = f"sqlite:///{folder}/metadata.sqlite"
    brokers = [
        ServedBroker(folder / f"b{n}", metadata=metadata, options=OPTIONS, arguments=("--broker-id", str(n)))
        for n in range(3)
    ]
    for broker in brokers:
        broker.start()
    yield ",".join(broker.bootstrap_servers for broker in brokers)
    for broker in brokers:
        broker.kill()
        assert "Traceback" not in broker.errors.read_text()


class Load:
    """A producer that goes on until it is stopped, round robin over the partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        self._topic = topic
        self._ends = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            self._producer.produce(self._topic, b"value", partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Group:
    """The members of one group, each of a library and a protocol, and the records that they read."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.group_id = f"g-{uuid.uuid4().hex}"
        self._servers = servers
        self._topic = topic
        self._folder = folder
        self.members: dict[str, Any] = {}
        self.java: list[JavaMember] = []
        self._seen: set[tuple[int, int]] = set()

    def join(self, library: str, protocol: str) -> None:
        """Start a member."""
        if library == "java":
            output = self._folder / f"{len(self.java)}.txt"
            settings = {"group_protocol": protocol} if protocol == "consumer" else {}
            member: Any = JavaMember(self._servers, self._topic, self.group_id, output=output, **settings)
            self.java.append(member)
        else:
            own = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300}
            member = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self._servers,
                    "group.id": self.group_id,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **(own if protocol == "classic" else {}),
                }
            )
            member.subscribe([self._topic])
        self.members[f"{library} {protocol}"] = member

    def end(self, name: str) -> None:
        """Let a member leave."""
        member = self.members.pop(name)
        if isinstance(member, JavaMember):
            member.end(signal.SIGTERM)
        else:
            member.close()

    def poll(self) -> None:
        for member in self.members.values():
            if isinstance(member, JavaMember):
                continue
            for message in member.consume(100, 0.05):
                if message.error() is None:
                    self._seen.add((message.partition(), message.offset()))
            with suppress(confluent_kafka.KafkaException):  # of an earlier epoch, or without a record: a later one does
                member.commit(asynchronous=False)

    @property
    def seen(self) -> set[tuple[int, int]]:
        return self._seen.union(*(each.seen for each in self.java))

    def described(self) -> tuple[str, str, list[int]]:
        """Return the kind, the state and the shares of the group."""
        flags = ["--bootstrap-server", self._servers, "--json"]
        runner = CliRunner()
        listed = map(json.loads, runner.invoke(main, ["groups", "list", *flags]).stdout.splitlines())
        group = {each["group_id"]: each for each in listed}.get(self.group_id, {})
        shown = runner.invoke(main, ["groups", "members", self.group_id, *flags]).stdout.splitlines()
        shares = sorted(len(json.loads(each)["assignment"]) for each in shown)
        return group.get("group_type", ""), group.get("group_state", ""), shares

    def is_(self, kind: str, shares: list[int]) -> Callable[[], bool]:
        def check() -> bool:
            for _ in range(5):
                self.poll()
            return self.described() == (kind, "Stable", shares)

        return check


@pytest.fixture
def started(servers: str, tmp_path: Path) -> Iterator[tuple[Group, Load]]:
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    group, load = Group(servers, topic, tmp_path), Load(servers, topic)
    yield group, load
    load.stop()
    for name in list(group.members):
        group.end(name)
    for member in group.java:
        member.end(signal.SIGKILL)


@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
def test_a_group_changes_its_protocol_member_by_member(started: tuple[Group, Load], before: str, after: str) -> None:
    group, load = started
    for library in ("java", "librdkafka"):
        group.join(library, before)
    assert eventually(group.is_(before, [3, 3]), within_s=WITHIN_S), group.described()
    for library in ("librdkafka", "java"):
        group.join(library, after)
    assert eventually(group.is_("consumer", [1, 1, 2, 2]), within_s=WITHIN_S), group.described()
    group.end(f"librdkafka {before}")
    assert eventually(group.is_("consumer", [2, 2, 2]), within_s=WITHIN_S), group.described()
    group.end(f"java {before}")
    assert eventually(group.is_(after, [3, 3]), within_s=WITHIN_S), group.described()
    count = load.sent
    assert eventually(lambda: group.poll() or load.sent > count + 50, within_s=WITHIN_S)
    load.stop()
    wanted = {(number % PARTITIONS, number // PARTITIONS) for number in range(load.sent)}
    assert eventually(lambda: group.poll() or group.seen >= wanted, within_s=WITHIN_S), sorted(wanted - group.seen)[:10]
