"""A process at its descriptor limit refuses connections and nothing else, with existing clients."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from conformance.interop.existing_clients import BROKER_OPTIONS, DEADLINE_S
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

OPEN_FILES = 96
FLOOD = 300
TOPIC_CONFIG = {"segment.bytes": "20000", "segment.index.bytes": "4096"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    options = {**BROKER_OPTIONS, "log.flush.offset.checkpoint.interval.ms": "300"}
    with ServedBroker(tmp_path / "data", options=options, open_files=OPEN_FILES) as served:
        yield served
        assert served.stop() == 0
        text = served.errors.read_text()
        assert "Traceback" not in text, text
        assert "has failed" not in text, text
        assert "appends are refused until" not in text, text


class Writer:
    """A producer whose records are rolled into new segments every few dozen."""

    def __init__(self, servers: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": 10}
        )
        self._failures: list[object] = []
        self.count = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                "t",
                b"%d" % self.count + bytes(1000),
                partition=self.count % 4,
                on_delivery=lambda error, _: self._failures.append(error) if error else None,
            )
            self.count += 1
        assert self._producer.flush(DEADLINE_S) == 0
        assert not self._failures


def create(servers: str) -> None:
    wanted = [NewTopic(name, 4, 1, config=TOPIC_CONFIG) for name in ("t", "noise")]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(wanted).values():
        future.result(DEADLINE_S)


def read(servers: str, count: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(4)])
    found: list[int] = []
    while len(found) < count and (polled := consumer.consume(count - len(found), DEADLINE_S)):
        assert not [message.error() for message in polled if message.error()]
        found += [int((message.value() or b"").rstrip(b"\0")) for message in polled]
    consumer.close()
    assert sorted(found) == list(range(count))


def is_refused(connection: BlockingWireClient) -> bool:
    """Return whether the broker closes the connection instead of answering."""
    with contextlib.suppress(ConnectionError):
        connection.send(ApiKey.API_VERSIONS, {}, 0)
        return connection.receive() is None
    return True


def administer(servers: str) -> None:
    """Send requests of APIs whose handlers are imported at first use."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values():
        future.result(DEADLINE_S)
    admin.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
    admin.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)
    admin.create_topics([NewTopic("u", 1, 1)])["u"].result(DEADLINE_S)
    admin.delete_topics(["u"])["u"].result(DEADLINE_S)


def test_connections_beyond_the_descriptor_limit_are_closed_without_other_effects(broker: ServedBroker) -> None:
    servers = broker.bootstrap_servers
    create(servers)
    writer = Writer(servers)
    writer.write(100)
    with contextlib.ExitStack() as flood:
        refused = sum(is_refused(flood.enter_context(BlockingWireClient(servers))) for _ in range(FLOOD))
        assert refused > FLOOD // 2
        writer.write(400)
    administer(servers)
    read(servers, 500)
    said = broker.errors.read_text()
    assert "Too many open files" not in said
    assert f"The limit of open files, {OPEN_FILES}, leaves room for " in said
    assert "the limit for open files has room for no more" in said


def test_a_descriptor_limit_lowered_below_the_open_files_has_no_lasting_effect(broker: ServedBroker) -> None:
    """As when others have used up what the system has for all."""
    servers = broker.bootstrap_servers
    create(servers)
    writer = Writer(servers)
    writer.write(40)
    admin = AdminClient({"bootstrap.servers": servers, "socket.timeout.ms": 2000})
    admin.list_topics(timeout=DEADLINE_S)
    assert broker.pid is not None
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    for _ in range(3):
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (5, limits[1]))
        groups = admin.list_consumer_groups(request_timeout=2)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "message.timeout.ms": 1000, "batch.num.messages": 10}
        )
        for _ in range(100):
            producer.produce("noise", bytes(1000))
        producer.flush(2)
        eventually(lambda: "Too many open files" in broker.errors.read_text(), within_s=DEADLINE_S)
        with contextlib.suppress(confluent_kafka.KafkaException):
            groups.result(DEADLINE_S)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        writer.write(120)
    administer(servers)
    read(servers, writer.count)


# ---- Limits of connections -------------------------------------------------------------------------------------------

BROKER: Final = 4


FLAGS: Final = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def is_served(connection: BlockingWireClient) -> bool:
    connection.send(ApiKey.METADATA, FLAGS, 9)
    return connection.receive() is not None


def change(connection: BlockingWireClient, **config: str) -> None:
    keys = [{"name": name.replace("_", "."), "value": value, "config_operation": 0} for name, value in config.items()]
    wanted: dict[str, Any] = {"resource_type": BROKER, "resource_name": "0", "configs": keys}
    answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [wanted], "validate_only": False}, 1)
    assert answer.responses[0].error_code is ErrorCode.none, answer


def test_a_changed_connection_limit_per_address_applies_at_once(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker, BlockingWireClient(broker.bootstrap_servers) as first:
        servers = broker.bootstrap_servers
        change(first, max_connections_per_ip="2")
        with BlockingWireClient(servers) as second, BlockingWireClient(servers) as third:
            assert is_served(second)
            assert not is_served(third)
            change(first, max_connections_per_ip_overrides="127.0.0.1:3")
            with BlockingWireClient(servers) as fourth:
                assert is_served(fourth)
            change(first, max_connections="2")
            with BlockingWireClient(servers) as fifth:
                assert not is_served(fifth)
            assert is_served(second)
