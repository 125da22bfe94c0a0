"""A broker process with two data directories, of which one is not mounted or its disk fails (M1).

The client is librdkafka.
"""

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
PARTITIONS = 2
FAILING_DISK = """
import errno, os
_sync = os.fdatasync
def _failing(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if any(os.path.dirname(path).startswith(f"{each}/") and os.path.exists(f"{each}.dead") for each in DIRECTORIES):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _sync(descriptor)
os.fdatasync = _failing
"""
"""The start-up module of a process whose disks fail as soon as there is a file of that name beside them."""


class Disks:
    """Directories `a` and `b` of a broker, with a partition in each, and the tree beside them."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.metadata = f"sqlite:///{folder}/tree.sqlite"
        self.broker = ServedBroker(
            folder / "broker",
            options={**BROKER_OPTIONS, **options},
            metadata=self.metadata,
            arguments=["--data-dir", f"{folder}/a,{folder}/b"],
        )

    def partition_in(self, directory: str) -> int:
        (found,) = (self.folder / directory).glob("t-?")
        return int(found.name[-1])

    @property
    def said(self) -> str:
        return self.broker.errors.read_text()


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def write(servers: str, partition: int, *values: bytes, timeout_s: float = DEADLINE_S) -> list[str]:
    """Write values with `acks=all`, and return the errors."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "acks": "all", "retries": 0, "message.timeout.ms": int(timeout_s * 1000)}
    )
    errors: list[str] = []
    for value in values:
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, _: error and errors.append(error.name())
        )
    assert producer.flush(DEADLINE_S) == 0
    return errors


def read(servers: str, partition: int, count: int) -> list[bytes]:
    """Return the values of a partition, which must be so many."""
    place = confluent_kafka.TopicPartition("t", partition, 0)
    # Without commits: closing would wait for a coordinator whose partition may be on the lost disk.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S) == (0, count)
        consumer.assign([place])
        found: list[bytes] = []
        while len(found) < count and (polled := consumer.consume(count - len(found), DEADLINE_S)):
            found += [each.value() for each in polled]
        return found
    finally:
        consumer.close()


def until_nobody_leads(servers: str, partition: int) -> None:
    eventually(lambda: not has_leader(servers, partition), within_s=DEADLINE_S)


def has_leader(servers: str, partition: int) -> bool:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        return consumer.list_topics("t", timeout=DEADLINE_S).topics["t"].partitions[partition].leader != -1
    finally:
        consumer.close()


def test_an_unmounted_directory_is_missing_until_it_is_back_or_forgotten(disks: Disks) -> None:
    broker, folder = disks.broker, disks.folder
    with broker:
        servers = broker.bootstrap_servers
        CLIENTS[0].create(servers, "t", PARTITIONS)
        here, there = disks.partition_in("a"), disks.partition_in("b")
        assert not write(servers, here, b"1") + write(servers, there, b"1", b"2")
        broker.kill()
        (folder / "b").rename(folder / "unmounted")
        (folder / "b").mkdir()

        broker.start()
        until_nobody_leads(servers, there)
        assert write(servers, there, b"lost", timeout_s=1.0) == ["_MSG_TIMED_OUT"]
        assert not write(servers, here, b"2")
        assert read(servers, here, 2) == [b"1", b"2"]
        line = next(each for each in disks.said.splitlines() if "is missing, and " in each)
        assert f"the data directory {folder}/b (directory.id " in line
        assert f"1 logs, which are offline; no other replica is in sync of t-{there}; mount the disk" in line
        broker.kill()

        (folder / "b").rename(folder / "under")
        (folder / "unmounted").rename(folder / "b")
        broker.start()
        assert not write(servers, there, b"3")
        assert read(servers, there, 3) == [b"1", b"2", b"3"]
        assert read(servers, here, 2) == [b"1", b"2"]
        assert broker.stop() == 0

        (folder / "b").rename(folder / "dead")
        broker.start()
        until_nobody_leads(servers, there)
        said = disks.said.splitlines()[-200:]
        command = next(each for each in reversed(said) if "forget-directory" in each).rpartition("run: odradek ")[2]
        assert broker.stop() == 0
        done = subprocess.run(
            [sys.executable, "-m", "odradek", *command.replace("URL", disks.metadata).split()],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"broker 0 has given up all that was in {folder}/b; start it again\n"
        broker.start()
        assert not write(servers, there, b"new")
        assert read(servers, there, 1) == [b"new"]
        assert broker.stop() == 0
    assert "Traceback" not in disks.said


def test_a_failed_disk_stops_its_directory_and_the_last_one_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(tmp_path, **{"log.flush.mode": "group"})
    folder = tmp_path / "python"
    folder.mkdir()
    names = [f"{tmp_path}/a", f"{tmp_path}/b"]
    (folder / "sitecustomize.py").write_text(FAILING_DISK.replace("DIRECTORIES", repr(names)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    broker = disks.broker
    with broker:
        servers = broker.bootstrap_servers
        CLIENTS[0].create(servers, "t", PARTITIONS)
        here, there = disks.partition_in("a"), disks.partition_in("b")
        assert not write(servers, here, b"1") + write(servers, there, b"1", b"2")
        (tmp_path / "b.dead").touch()
        assert write(servers, there, b"lost", timeout_s=5.0)
        until_nobody_leads(servers, there)
        assert (
            disks.said.count(f"the data directory {tmp_path}/b has failed: [Errno 5] Input/output error; its 1 logs")
            == 1
        )
        assert not write(servers, here, b"2")
        assert read(servers, here, 2) == [b"1", b"2"]

        (tmp_path / "a.dead").touch()
        assert write(servers, here, b"lost", timeout_s=5.0)
        eventually(lambda: not broker.runs, within_s=DEADLINE_S)
        process = broker._running()
        assert process.wait() == 1
        last = disks.said.splitlines()[-1]
        assert "broker 0 shuts down because all log dirs have failed: the data directory " in last
        for name in "ab":
            assert f"the data directory {tmp_path}/{name} has failed: " in last
            (tmp_path / f"{name}.dead").unlink()

        broker.start()
        assert not write(servers, here, b"after") + write(servers, there, b"after")
        for partition, values in ((here, [b"1", b"2"]), (there, [b"1", b"2"])):
            found = read_to_the_end(servers, partition)
            assert [each for each in found if each != b"lost"] == [*values, b"after"]
        assert broker.stop() == 0
    assert "Traceback" not in disks.said


def read_to_the_end(servers: str, partition: int) -> list[bytes]:
    """Return the values of a partition, which may have one that was written, not synced and not acknowledged."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    place = confluent_kafka.TopicPartition("t", partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
    consumer.close()
    return read(servers, partition, end)
