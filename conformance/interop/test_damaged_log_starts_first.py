"""M1. A broker's log loses its last segment while all three brokers are stopped, and that broker starts first.

Its metadata tree counts only this broker as in sync, and the other two have every record.
"""

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from conformance.interop.existing_clients import BROKER_OPTIONS
from conformance.soak.fault_rounds import ServedCluster
from odradek.testing import eventually

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
COUNT = 200
OPTIONS = {
    **BROKER_OPTIONS,
    "default.replication.factor": "3",
    "log.segment.bytes": "4096",
    "replica.lag.time.max.ms": "5000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> ServedCluster:
    return ServedCluster(tmp_path, f"sqlite:///{tmp_path}/tree.sqlite", OPTIONS)


def odradek(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(servers: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    errors: list[str] = []
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=lambda error, _: error and errors.append(str(error)))
        producer.flush(DEADLINE_S)
    assert not errors


def read(servers: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        while len(found) < count and (polled := consumer.consume(count - len(found), DEADLINE_S)):
            found += [each.value() for each in polled]
        return found
    finally:
        consumer.close()


def state(servers: str) -> tuple[int, set[int]]:
    """The leader of the partition, -1 without one, and the ISR."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        found = consumer.list_topics("t", timeout=DEADLINE_S).topics["t"].partitions[0]
        return found.leader, set(found.isrs)
    finally:
        consumer.close()


@pytest.mark.parametrize("lost", ["the last segment", "the folder"])
def test_no_record_is_lost_when_the_broker_with_the_damaged_log_starts_first(cluster: ServedCluster, lost: str):
    with cluster:
        servers = cluster.servers
        odradek("topics", "create", "t", "--partitions", "1", "--bootstrap-server", servers)
        values = [b"%d" % number for number in range(COUNT)]
        eventually(lambda: len(state(servers)[1]) == 3, within_s=DEADLINE_S)
        write(servers, values)
        for broker in cluster.brokers:
            assert broker.stop() == 0
        last = cluster.brokers[2]
        folder = last.data_dir / "t-0"
        segments = sorted(folder.glob("*.log"))
        assert len(segments) > 1
        if lost == "the folder":
            folder.rename(last.data_dir.with_name("gone"))
        else:
            segments[-1].unlink()

        last.start()
        eventually(lambda: state(last.bootstrap_servers) == (-1, {2}), within_s=DEADLINE_S)
        said = last.errors.read_text()
        command = "odradek partitions elect --unclean --topic t --partition 0"
        assert f"records before offset {COUNT} are lost; no other replica is in sync" in said
        assert command in said
        for broker in cluster.brokers[:2]:
            broker.start()
        eventually(lambda: state(servers) == (-1, {2}), within_s=DEADLINE_S)

        odradek(*command.split()[1:], "--bootstrap-server", servers)
        eventually(lambda: state(servers)[1] == {0, 1, 2}, within_s=DEADLINE_S)
        assert read(servers, COUNT) == values
        write(servers, [b"more"])
        for broker in cluster.brokers[:2]:
            assert broker.stop() == 0
        eventually(lambda: state(last.bootstrap_servers)[0] == 2, within_s=DEADLINE_S)
        assert read(last.bootstrap_servers, COUNT + 1) == [*values, b"more"]
