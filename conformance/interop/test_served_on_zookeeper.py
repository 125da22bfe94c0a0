"""M9: a broker process with its tree in a real ZooKeeper, through outages of it."""

import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from conformance.interop.existing_clients import BROKER_OPTIONS, DEADLINE_S
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [pytest.mark.long, pytest.mark.needs("zookeeper")]
OPTIONS = {**BROKER_OPTIONS, "zookeeper.session.timeout.ms": "30000"}


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}"


@pytest.fixture
def url(zookeeper, chroot: str) -> str:
    return f"zookeeper://{zookeeper.address}{chroot}"


@pytest.fixture
def znodes(zookeeper, chroot: str) -> Iterator[KazooClient]:
    """Return the znodes that a ZooKeeper client sees below the chroot."""
    client = KazooClient(hosts=zookeeper.address)
    client.start()
    client.ensure_path(chroot)
    client.chroot = chroot
    yield client
    client.stop()
    client.close()


@pytest.fixture
def broker(tmp_path: Path, url: str) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "data", metadata=url, options=OPTIONS) as served:
        yield served
    assert "Traceback" not in served.errors.read_text()


@pytest.fixture
def serve_in_vain(tmp_path: Path) -> Callable[..., str]:
    """Runs a broker that cannot start: what it says on standard error, after exit code 1."""

    def run(url: str, *options: str) -> str:
        command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0", "--metadata", url]
        done = subprocess.run(
            [*command, "--data-dir", str(tmp_path / "vain"), *options],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr
        assert sum(line.startswith("odradek: ") for line in done.stderr.splitlines()) == 1
        return done.stderr

    return run


def create(servers: str, *names: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(each, partitions) for each in names]).values():
        future.result(DEADLINE_S)


def write(producer: Producer, topic: str, *values: bytes) -> None:
    failed: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def read(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(int(DEADLINE_S) * 10):
        found += [message.value() for message in consumer.consume(count, 0.1) if message.error() is None]
        if len(found) >= count:
            break
    consumer.close()
    return sorted(found)


def test_a_zookeeper_client_reads_the_tree_of_a_broker(broker: ServedBroker, znodes: KazooClient) -> None:
    create(broker.bootstrap_servers, "flights", partitions=2)
    host, port = broker.bootstrap_servers.split(":")
    assert znodes.get_children("/brokers/ids") == ["0"]
    registered, stat = znodes.get("/brokers/ids/0")
    assert json.loads(registered)["host"] == host
    assert json.loads(registered)["port"] == int(port)
    controller, controllers_stat = znodes.get("/controller")
    assert json.loads(controller)["brokerid"] == 0
    assert stat.ephemeralOwner == controllers_stat.ephemeralOwner != 0
    assert sorted(znodes.get_children("/brokers/topics/flights/partitions")) == ["0", "1"]
    state = json.loads(znodes.get("/brokers/topics/flights/partitions/1/state")[0])
    assert (state["leader"], state["isr"], state["controller_epoch"]) == (0, [0], 1)
    assert broker.stop() == 0
    assert znodes.get_children("/brokers/ids") == [], "gone at once, when it was stopped cleanly"
    assert znodes.exists("/controller") is None
    broker.start()
    assert znodes.get("/controller_epoch")[0] == b"2"


def test_records_are_served_while_zookeeper_is_down_and_topics_created_when_it_is_back(
    broker: ServedBroker, zookeeper
) -> None:
    servers = broker.bootstrap_servers
    create(servers, "kept", partitions=3)
    producer = Producer({"bootstrap.servers": servers})
    before, during, after = ([b"%s-%d" % (when, number) for number in range(50)] for when in (b"a", b"b", b"c"))
    write(producer, "kept", *before)
    assert read(servers, "kept", 50) == sorted(before)  # the groups' topic is there from now on
    zookeeper.kill()
    try:
        write(producer, "kept", *during)
        assert read(servers, "kept", 100) == sorted(before + during), "new groups need no tree either"
        eventually(lambda: "is lost; looking for another" in broker.errors.read_text())
    finally:
        zookeeper.start()
    create(servers, "later")
    write(producer, "kept", *after)
    write(producer, "later", b"x")
    assert read(servers, "later", 1) == [b"x"]
    assert "expired" not in broker.errors.read_text(), "its session went on"


def test_a_zookeeper_outage_longer_than_a_session_stops_writes_until_it_is_back(
    tmp_path: Path, url: str, zookeeper
) -> None:
    """Acknowledged records are kept, and no process has to be restarted."""
    options = {**BROKER_OPTIONS, "zookeeper.session.timeout.ms": "2000"}
    with ServedBroker(tmp_path / "data", metadata=url, options=options) as broker:
        servers = broker.bootstrap_servers
        create(servers, "kept")
        producer = Producer({"bootstrap.servers": servers})
        write(producer, "kept", b"before")
        zookeeper.kill()
        try:
            eventually(lambda: "leads no partition until it has a session" in broker.errors.read_text(), within_s=60)
            outcomes: list[Any] = []
            hasty = Producer({"bootstrap.servers": servers, "message.timeout.ms": 1000})
            hasty.produce("kept", b"during", on_delivery=lambda error, _: outcomes.append(error))
            assert hasty.flush(DEADLINE_S) == 0
            assert [error is None for error in outcomes] == [False], "nobody acknowledged it"
        finally:
            zookeeper.start()
        eventually(lambda: "leads its partitions again" in broker.errors.read_text(), within_s=60)
        write(producer, "kept", b"after")
        assert read(servers, "kept", 2) == [b"after", b"before"]


def test_a_broker_that_was_killed_starts_again_when_its_session_has_ended(tmp_path: Path, url: str) -> None:
    options = {**BROKER_OPTIONS, "zookeeper.session.timeout.ms": "1500"}
    with ServedBroker(tmp_path / "data", metadata=url, options=options) as broker:
        create(broker.bootstrap_servers, "kept")
        write(Producer({"bootstrap.servers": broker.bootstrap_servers}), "kept", b"x")
        broker.kill()
        broker.start()
        assert read(broker.bootstrap_servers, "kept", 1) == [b"x"]


def test_a_starting_broker_logs_that_it_waits_for_its_previous_session(
    broker: ServedBroker, znodes: KazooClient
) -> None:
    """Ours stands in for that session: its own might end before the broker has come to look."""
    registered, _ = znodes.get("/brokers/ids/0")
    assert broker.stop() == 0
    znodes.create("/brokers/ids/0", registered, ephemeral=True)
    broker.launch()
    eventually(lambda: "is still registered; waiting up to" in broker.errors.read_text(), within_s=60)
    znodes.delete("/brokers/ids/0")
    broker.wait_until_ready()
    assert znodes.get("/brokers/ids/0")[0]


def test_a_broker_id_in_use_is_an_error_of_one_sentence(broker: ServedBroker, url: str, serve_in_vain) -> None:
    said = serve_in_vain(url, "--broker-id", "0")
    assert f"odradek: the broker id 0 is taken by the broker at {broker.bootstrap_servers}\n" in said


def test_a_tree_of_another_cluster_is_refused(tmp_path: Path, url: str, znodes: KazooClient, serve_in_vain) -> None:
    with ServedBroker(tmp_path / "vain", metadata=url, options=OPTIONS):
        pass
    assert "has no node" in serve_in_vain(f"{url}/other"), "no tree is made for a directory of a cluster"
    assert znodes.exists("/other") is None
    with ServedBroker(tmp_path / "another", metadata=f"{url}/other", options=OPTIONS):
        pass
    (first,) = [line for line in (tmp_path / "vain/meta.properties").read_text().splitlines() if "cluster.id" in line]
    said = serve_in_vain(f"{url}/other")
    assert f"is of cluster {first.partition('=')[2]}, and the metadata of cluster " in said
    assert znodes.get_children("/other/brokers/ids") == [], "it did not join"


def test_broken_nodes_are_logged_once_and_left_alone(broker: ServedBroker, znodes: KazooClient) -> None:
    broken = {
        "/brokers/topics/spoilt": b'{"version": 3, "partitions"',
        "/brokers/ids/7": b"\xff\xfe",
        "/config/topics/fine": b'{"version": 1, "config": "none"}',
    }
    for path, data in broken.items():
        znodes.create(path, data)
    eventually(lambda: "/brokers/topics/spoilt is broken" in broker.errors.read_text())
    create(broker.bootstrap_servers, "fine", "more", "another")
    znodes.create("/brokers/ids/8", b"{}")  # every registration is read again
    write(Producer({"bootstrap.servers": broker.bootstrap_servers}), "fine", b"x")
    assert read(broker.bootstrap_servers, "fine", 1) == [b"x"]
    eventually(lambda: "/brokers/ids/8 is broken" in broker.errors.read_text())
    said = broker.errors.read_text()
    for path, data in broken.items():
        if path != "/config/topics/fine":  # creating the topic replaces what was set before
            assert znodes.get(path)[0] == data
            assert said.count(f"node {path} is broken") == 1
    for path in (*broken, "/brokers/ids/8"):
        znodes.delete(path)


def test_an_unreachable_zookeeper_is_logged_at_once_and_finally_an_error(serve_in_vain) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = serve_in_vain(f"zookeeper://{address}/x", "-o", "zookeeper.connection.timeout.ms=2000")
    *_, waiting, error = said.splitlines()
    assert f"no ZooKeeper server answers at {address} yet; waiting for 2 s" in waiting
    assert error == f"odradek: no ZooKeeper server answers at {address}"


def test_a_broker_with_an_old_disk_is_not_elected_by_a_live_controller(
    tmp_path: Path, url: str, znodes: KazooClient
) -> None:
    """Broker 0's disk was replaced and filled again; its old one has less than was acknowledged since."""

    def state() -> dict[str, Any]:
        return dict(json.loads(znodes.get("/brokers/topics/kept/partitions/0/state")[0]))

    options = {**BROKER_OPTIONS, "zookeeper.session.timeout.ms": "3000"}
    with ExitStack() as running:
        zero, one, two = (
            ServedBroker(tmp_path / f"data-{number}", metadata=url, options={**options, "broker.id": str(number)})
            for number in range(3)
        )
        for broker in (two, zero, one):
            running.enter_context(broker)
        servers = two.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic("kept", 1, replica_assignment=[[0, 1]])
        admin.create_topics([topic])["kept"].result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        write(producer, "kept", b"1")
        assert zero.stop() == 0
        zero.data_dir.rename(tmp_path / "old")
        zero.start()
        eventually(lambda: sorted(state()["isr"]) == [0, 1], within_s=60)
        write(producer, "kept", b"2")

        for broker in (two, zero, one):  # the controller first, so that the ISR does not shrink
            broker.kill()
        eventually(lambda: znodes.get_children("/brokers/ids") == [], within_s=60)
        zero.data_dir.rename(tmp_path / "newer")
        (tmp_path / "old").rename(zero.data_dir)
        two.start()
        eventually(lambda: state()["leader"] == -1, within_s=60)
        assert sorted(state()["isr"]) == [0, 1]
        zero.start()
        assert znodes.exists("/brokers/ids/0")
        assert (state()["leader"], state()["isr"]) == (-1, [1]), "it was in sync with what it no longer has"
        assert json.loads(znodes.get("/controller")[0])["brokerid"] == 2
        one.start()
        eventually(lambda: sorted(state()["isr"]) == [0, 1], within_s=60)
        assert state()["leader"] == 1
        write(producer, "kept", b"3")
        assert read(servers, "kept", 3) == [b"1", b"2", b"3"]
        assert [each.stop() for each in (zero, one, two)] == [0, 0, 0]
