"""A disk that is really full, under a broker process with an existing client (M1)."""

import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from conformance.interop.small_disk import SmallDisk
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
DISK_BYTES = 24 << 20
BALLAST_BYTES = 6 << 20
PARTITIONS = 3
SETTINGS = {**BROKER_OPTIONS, "log.segment.bytes": "262144", "log.index.size.max.bytes": "65536"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", DISK_BYTES) as disk:
        if disk.trouble:
            pytest.skip(disk.trouble)
        (disk.view / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield disk


def fill(disk: SmallDisk) -> None:
    """Leave no page free."""
    with (disk.view / "ballast").open("ab", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            return


class Writer:
    """A producer without retries, with the offset or error of each message."""

    def __init__(self, servers: str, topic: str = "t") -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.refused: Counter[str] = Counter()
        self._topic = topic
        self._number = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "retries": 0,
                "linger.ms": 5,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "log_level": 0,
            }
        )

    def write(self, count: int, size: int = 4096) -> None:
        """Write `count` messages, and wait until something is known of each."""
        for _ in range(count):
            value = (b"%d " % self._number).ljust(size, b"x")
            self._producer.produce(self._topic, value, partition=self._number % PARTITIONS, on_delivery=self._delivered)
            self._number += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def write_until(self, is_enough: Callable[[], bool]) -> None:
        def is_enough_now() -> bool:
            self.write(60)
            return is_enough()

        eventually(is_enough_now, within_s=DEADLINE_S)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.refused[error.name()] += 1
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()


def read_all(servers: str) -> dict[tuple[int, int], bytes]:
    # Without commits: the groups' logs may have found no room, and closing would wait for their coordinator.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    places = [confluent_kafka.TopicPartition("t", number, 0) for number in range(PARTITIONS)]
    wanted = sum(consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[1] for place in places)
    consumer.assign(places)
    found: dict[tuple[int, int], bytes] = {}
    while len(found) < wanted and (polled := consumer.consume(min(wanted - len(found), 1000), DEADLINE_S)):
        found |= {(each.partition(), each.offset()): each.value() for each in polled if each.error() is None}
    consumer.close()
    assert len(found) == wanted
    return found


def check(broker: ServedBroker, writer: Writer) -> None:
    """Check that every acknowledged message is at its offset, and none is there twice."""
    found = read_all(broker.bootstrap_servers)
    assert {place: found.get(place) for place in writer.acknowledged} == writer.acknowledged
    assert len(set(found.values())) == len(found)


def verify(directory: Path) -> None:
    command = [sys.executable, "-m", "odradek", "log", "verify", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is damaged" in done.stdout


def probe(broker: ServedBroker) -> tuple[int, str]:
    port = re.findall(r"metrics at http://127\.0\.0\.1:(\d+)", broker.errors.read_text())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE_S) as answer:
        return answer.status, answer.read().decode()


def lines(broker: ServedBroker, text: str) -> int:
    return sum(text in line for line in broker.errors.read_text().splitlines())


def served(disk: SmallDisk, metadata: str | None, options: dict[str, str]) -> ServedBroker:
    return ServedBroker(
        disk.path / "data",
        options=SETTINGS | options,
        metadata=metadata,
        launcher=disk.launcher,
        arguments=["--metrics-listen", "127.0.0.1:0"],
    )


@pytest.mark.parametrize("mode", ["none", "group"])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(
    disk: SmallDisk, tmp_path: Path, mode: str
) -> None:
    """M1. Filled, given room, filled, killed, started while full, given room: nothing acknowledged is lost."""
    broker = served(disk, f"sqlite:///{tmp_path}/metadata.sqlite", {"log.flush.mode": mode})
    with broker:
        CLIENTS[0].create(broker.bootstrap_servers, "t", PARTITIONS)
        writer = Writer(broker.bootstrap_servers)
        writer.write_until(lambda: writer.refused.total() > 200)
        assert set(writer.refused) == {"KAFKA_STORAGE_ERROR"}
        assert len(writer.acknowledged) > 100
        check(broker, writer)
        status, page = probe(broker)
        assert status == 200
        assert page.splitlines()[1].startswith(f"{broker.data_dir} had no room for a write ")
        assert lines(broker, "has no space for writes") == 1

        (disk.view / "ballast").unlink()
        before = len(writer.acknowledged)
        writer.write(100)
        assert len(writer.acknowledged) == before + 100
        verify(disk.view / "data")

        fill(disk)
        refused = writer.refused.total()
        writer.write_until(lambda: writer.refused.total() > refused + 20)
        broker.kill()
        fill(disk)
        verify(disk.view / "data")
        broker.start()
        check(broker, writer)
        refused, before = writer.refused.total(), len(writer.acknowledged)
        writer.write(30, size=50_000)
        assert writer.refused.total() > refused
        (disk.view / "ballast").unlink()
        writer.write(30)
        assert len(writer.acknowledged) >= before + 30
        check(broker, writer)
        assert broker.stop() == 0
        verify(disk.view / "data")
        broker.start()
        check(broker, writer)
    text = broker.errors.read_text()
    assert "Traceback" not in text
    assert len(text.splitlines()) < 60, text


def test_retention_frees_a_full_disk_that_also_holds_the_metadata(disk: SmallDisk) -> None:
    """M1. Without an operator: retention deletes old records, and the broker accepts writes again."""
    options = {
        "log.retention.bytes": "1000000",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
    }
    broker = served(disk, None, options)
    with broker:
        CLIENTS[0].create(broker.bootstrap_servers, "t", PARTITIONS)
        writer = Writer(broker.bootstrap_servers)
        writer.write_until(lambda: writer.refused.total() > 0)
        assert set(writer.refused) == {"KAFKA_STORAGE_ERROR"}
        before = len(writer.acknowledged)
        writer.write_until(lambda: len(writer.acknowledged) > before + 600)
        assert broker.stop() == 0
        verify(disk.view / "data")
    assert "Traceback" not in broker.errors.read_text()


def test_a_full_disk_that_also_holds_the_metadata_ends_no_session_and_a_deleted_topic_gives_it_room(
    disk: SmallDisk,
) -> None:
    """The disk is full for longer than a session, during a kill and a start."""
    options = {
        "zookeeper.session.timeout.ms": "2000",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
    }
    broker = served(disk, None, options)
    with broker:
        for topic in ("t", "old"):
            CLIENTS[0].create(broker.bootstrap_servers, topic, PARTITIONS)
        old = Writer(broker.bootstrap_servers, "old")
        old.write_until(lambda: len(old.acknowledged) >= 300)
        writer = Writer(broker.bootstrap_servers)
        writer.write(100)
        fill(disk)
        [lease] = (disk.view / "data" / "metadata.sqlite.sessions").iterdir()
        full_at = lease.stat().st_mtime
        writer.write_until(lambda: writer.refused.total() > 20 and lease.stat().st_mtime > full_at + 3)
        check(broker, writer)
        broker.kill()
        broker.start()
        check(broker, writer)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics(["old"])["old"].result(DEADLINE_S)
        before = len(writer.acknowledged)
        writer.write_until(lambda: len(writer.acknowledged) >= before + 60)
        check(broker, writer)
        assert lines(broker, "broker is fenced") == 0
    assert "Traceback" not in broker.errors.read_text()
