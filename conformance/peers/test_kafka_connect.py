"""M6. Two workers of Kafka Connect are a group of our broker, whose protocol is not that of consumers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from conformance.peers.connect_worker import ConnectWorker
from conformance.soak.streams_rounds import Streams, brokers
from odradek.cli import main
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

GROUP = "connectors"
WITHIN_S = 90.0
OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
SETTINGS = {
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "300",
    "offset.flush.interval.ms": "200",
    "scheduled.rebalance.max.delay.ms": "0",  # tasks of a lost worker are shared out at once, not after five minutes
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:
        yield broker.bootstrap_servers
    assert "Traceback" not in broker.errors.read_text()


@pytest.fixture
def workers(tmp_path: Path, servers: str) -> Iterator[list[ConnectWorker]]:
    """Two, running."""
    both = [
        ConnectWorker(tmp_path, name, servers=servers, group=GROUP, settings=SETTINGS) for name in ("first", "second")
    ]
    try:
        for worker in both:
            worker.launch()
        for worker in both:
            worker.wait_until_ready()
        yield both
    finally:
        for worker in both:
            worker.kill()


def ours(servers: str, *arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["groups", *arguments, "--bootstrap-server", servers, "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()] if done.exit_code == 0 else []


def places(worker: ConnectWorker, connector: str) -> tuple[str, str] | None:
    """Return the workers of a connector and of its task, as this worker knows them; None if one does not run."""
    status = worker.get(f"/connectors/{connector}/status")
    if status is None or len(status["tasks"]) != 1:
        return None
    parts = (status["connector"], status["tasks"][0])
    first, second = (part["worker_id"] for part in parts)
    return (first, second) if all(part["state"] == "RUNNING" for part in parts) else None


def read_position(worker: ConnectWorker, connector: str) -> int:
    """Return how far the connector's committed offset is in its file."""
    found = worker.get(f"/connectors/{connector}/offsets")
    return int(found["offsets"][0]["offset"]["position"]) if found and found["offsets"] else 0


def test_a_worker_takes_the_tasks_of_a_killed_one_over_and_continues_at_their_offsets(
    tmp_path: Path, servers: str, workers: list[ConnectWorker]
) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("one\ntwo\n")
    connectors = ("left", "right")
    for name in connectors:
        config = {"connector.class": "FileStreamSource", "file": str(source), "topic": name, "tasks.max": "1"}
        path = f"/connectors/{name}/config"
        assert eventually(lambda path=path, config=config: workers[0].put(path, config), within_s=WITHIN_S)

    def are_shared() -> bool:
        """Each worker has a connector or a task."""
        found = [places(workers[0], name) for name in connectors]
        return None not in found and {each for pair in found for each in pair or ()} == {
            worker.worker_id for worker in workers
        }

    assert eventually(are_shared, within_s=WITHIN_S)
    for name in connectors:
        assert eventually(lambda name=name: read_position(workers[0], name) == len("one\ntwo\n"), within_s=WITHIN_S)
    (group,) = ours(servers, "describe", GROUP)
    assert (group["protocol_type"], group["protocol"], group["group_state"]) == ("connect", "sessioned", "Stable")
    assert {each["client_id"] for each in group["members"]} == {f"connect-{each.worker_id}" for each in workers}
    assert all(not each["assignment"] for each in group["members"]), "they share out tasks, not partitions"

    killed, other = workers
    killed.kill()
    with source.open("a") as more:
        more.write("three\n")
    alone = (other.worker_id, other.worker_id)
    assert eventually(lambda: all(places(other, name) == alone for name in connectors), within_s=WITHIN_S)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0) for name in connectors])
    read: dict[str, list[bytes]] = {name: [] for name in connectors}

    def all_are_read() -> bool:
        for message in consumer.consume(10, 0.1):
            read[message.topic()].append(message.value())
        return all(b"three" in values for values in read.values())

    assert eventually(all_are_read, within_s=WITHIN_S)
    consumer.close()
    assert list(read.values()) == [[b"one", b"two", b"three"]] * 2
    assert ours(servers, "history", GROUP)[-1]["cause"] == "session expired"
    (group,) = ours(servers, "describe", GROUP)
    assert [each["client_id"] for each in group["members"]] == [f"connect-{other.worker_id}"]


# ---- Kafka Streams ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_words_are_counted_exactly_once_though_an_instance_and_a_broker_are_killed(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        streams = Streams(cluster, tmp_path, 0, lines=200, faults=["instance killed", "broker killed"])
        assert streams.play() == "", streams.done
