"""`odradek up` as a process: the ready line, its brokers as existing clients see them, deaths, and the end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import eventually

DEADLINE_S = 60
PROGRAM = [sys.executable, "-m", "odradek", "up"]


class Up:
    """A running `odradek up`."""

    def __init__(self, process: "subprocess.Popen[str]", addresses: list[str]) -> None:
        self.process = process
        self.addresses = addresses
        self.bootstrap_servers = ",".join(addresses)

    def children(self) -> list[int]:
        """The processes of its brokers, and of nothing else, in the order of their start."""
        return children_of(self.process.pid)


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def serves(address: str) -> bool:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def runs(pid: int) -> bool:
    """Whether it does something still: a container may have nobody who takes leave of orphans that ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def up(directory: Path, *arguments: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [*PROGRAM, "--port", "0", "--data-dir", str(directory), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children: list[int] = []
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: "), process.communicate(timeout=DEADLINE_S)
        running = Up(process, line.removeprefix("ready: ").strip().split(","))
        children = running.children()
        yield running
    finally:
        if process.poll() is None:
            children = children_of(process.pid)
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        eventually(lambda: not any(map(runs, children)))


def brokers(admin: AdminClient) -> dict[int, str]:
    return {number: f"{b.host}:{b.port}" for number, b in admin.list_topics(timeout=DEADLINE_S).brokers.items()}


def leaders(admin: AdminClient, topic: str) -> list[int]:
    partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return sorted(partition.leader for partition in partitions.values())


def replication_factors(admin: AdminClient, topic: str) -> set[int]:
    partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return {len(partition.replicas) for partition in partitions.values()}


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(DEADLINE_S * 10):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        if len(found) == count:
            break
    consumer.close()
    return sorted(found)


def test_several_brokers_serve_one_cluster_and_stop_together(tmp_path: Path) -> None:
    """M1: a topic's partitions spread over the brokers, and existing clients find each one's leader."""
    with up(tmp_path, "--brokers", "3") as running:
        assert len(set(running.addresses)) == len(running.children()) == 3
        admin = AdminClient({"bootstrap.servers": running.addresses[2]})
        eventually(lambda: brokers(admin) == dict(enumerate(running.addresses)))
        admin.create_topics([NewTopic("spread", 6)])["spread"].result(DEADLINE_S)
        eventually(lambda: leaders(admin, "spread") == [0, 0, 1, 1, 2, 2])
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(60):
            producer.produce("spread", b"%d" % number, partition=number % 6)
        assert producer.flush(DEADLINE_S) == 0
        assert consume(running.bootstrap_servers, "spread", 60) == sorted(b"%d" % number for number in range(60))
        assert replication_factors(admin, "spread") == {3}
        assert replication_factors(admin, "__consumer_offsets") == {3}, "what groups remember survives a broker"
        children = running.children()
        running.process.send_signal(signal.SIGTERM)
        rest, log = running.process.communicate(timeout=DEADLINE_S)
        assert (running.process.returncode, rest) == (0, "")
        assert "SIGTERM: shutting down; a second signal ends the process at once" in log
        assert "ERROR" not in log
        assert not any(map(runs, children))
    for number in range(3):
        assert (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()
        assert "has stopped" in (tmp_path / f"broker-{number}.log").read_text()


@pytest.mark.long
def test_a_broker_that_is_killed_is_started_again_where_it_was(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "2") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("kept", 2)])["kept"].result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(20):
            producer.produce("kept", b"%d" % number, partition=number % 2)
        assert producer.flush(DEADLINE_S) == 0
        before = running.children()
        os.kill(before[1], signal.SIGKILL)
        eventually(
            lambda: len(running.children()) == 2 and running.children() != before and serves(running.addresses[1])
        )
        assert before[0] in running.children(), "the other one runs on"
        assert consume(running.bootstrap_servers, "kept", 20) == sorted(b"%d" % number for number in range(20))
        running.process.send_signal(signal.SIGINT)
        _, log = running.process.communicate(timeout=DEADLINE_S)
        assert running.process.returncode == 0
        assert f"broker 1 (process {before[1]}) was ended by SIGKILL; restarting it in 0.2 s" in log


@pytest.mark.long
def test_brokers_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "2") as running:
        children = running.children()
        running.process.kill()
        eventually(lambda: not any(map(runs, children)))
    assert (tmp_path / "broker-0" / ".kafka_cleanshutdown").exists(), "they were told to stop"


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["-o", "broker.id=7"],
            "-o broker.id would be the same for every broker: they are numbered from 0 on; see --brokers",
        ),
        (["-o", "num.partitions=many"], "num.partitions"),
        (["-o", "no.such.key=1"], "no.such.key"),
        (["--metadata", "memory:"], "cannot share a tree in memory"),
        (["--config", "nowhere.properties"], "nowhere.properties"),
        (["--port", "65535"], "above 65535"),
        (["--config", "x.properties", "--secure", "security"], "add the keys of x.properties to"),
    ],
)
def test_a_failed_start_prints_one_line_and_leaves_no_broker_running(tmp_path: Path, arguments, words) -> None:
    done = subprocess.run(
        [*PROGRAM, "--brokers", "2", "--port", "0", "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(("odradek: ", "Error: "))]
    assert words in line
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_data_directory_in_use_is_named(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "1"):
        done = subprocess.run(
            [*PROGRAM, "--brokers", "1", "--port", "0", "--data-dir", str(tmp_path)],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"the data directory {tmp_path}/broker-0 is in use by process" in done.stderr
        assert "(odradek serve); stop it" in done.stderr
