"""M4, M8, M9: consumers of generation 1 in processes of their own, over SQLite and over a real ZooKeeper."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from conformance.interop.existing_clients import BROKER_OPTIONS
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.zookeeper import ZookeeperServer, find_zookeeper

pytestmark = pytest.mark.long

GROUP: Final = "readers"
PARTITIONS: Final = 4
READ: Final = """
import asyncio, sys
from odradek.clients import ZookeeperConsumer

async def main(url, name, storage, session_ms):
    settings = dict(group_id="readers", consumer_id=name, auto_offset_reset="smallest", auto_commit_interval_ms=100)
    settings |= dict(rebalance_backoff_ms=500, rebalance_max_retries=1000, zookeeper_session_timeout_ms=int(session_ms))
    settings |= dict(offsets_storage=storage)
    async with ZookeeperConsumer(url, **settings) as consumer:
        streams = await consumer.create_message_streams({"t": 1})
        async for record in streams["t"][0]:
            print(record.partition, record.value.decode(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Reader:
    """A process that prints the partition and the value of each record."""

    def __init__(
        self, folder: Path, url: str, name: str, storage: str = "zookeeper", *, session_ms: int = 2_000
    ) -> None:
        self.output = folder / f"{name}.out"
        self.errors = folder / f"{name}.err"
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            command = [sys.executable, "-c", READ, url, name, storage, str(session_ms)]
            self.process = subprocess.Popen(command, stdout=output, stderr=errors)

    def read(self) -> list[tuple[int, str]]:
        """Return the records so far, without a line that is half written."""
        complete, _, _ = self.output.read_text().rpartition("\n")
        lines = [line.split() for line in complete.splitlines()]
        return [(int(partition), value) for partition, value in lines]

    def end(self, number: signal.Signals) -> None:
        """End the process by a signal."""
        self.process.send_signal(number)
        self.process.wait(20)


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.needs("zookeeper"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The tree of a broker and its consumers."""
    if request.param == "zookeeper":
        return f"zookeeper://{request.getfixturevalue('zookeeper').address}/generation1{tmp_path.name}"
    return f"sqlite:///{tmp_path}/metadata.sqlite"


@pytest.fixture
def broker(tmp_path: Path, url: str) -> Iterator[ServedBroker]:
    """One broker with a topic of four partitions."""
    with ServedBroker(tmp_path / "data", metadata=url, options=BROKER_OPTIONS) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(20)
        yield served


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    """A list of processes, which are ended with the test."""
    started: list[Reader] = []
    yield started
    for reader in started:
        if reader.process.poll() is None:
            reader.process.kill()
            reader.process.wait(20)


def produce(broker: ServedBroker, first: int, number: int) -> set[str]:
    """Write so many records into each partition; return their values."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = {f"{partition}-{each}" for partition in range(PARTITIONS) for each in range(first, first + number)}
    for value in sorted(values):
        producer.produce("t", value.encode(), partition=int(value[0]))
    assert producer.flush(20) == 0
    return values


def values(*readers: Reader) -> set[str]:
    """Return what the processes have read."""
    return {value for reader in readers for _, value in reader.read()}


def odradek(*arguments: str) -> str:
    """Return what a command prints."""
    command = [sys.executable, "-m", "odradek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_partitions_of_a_killed_consumer_are_read_by_the_other(
    tmp_path: Path, url: str, broker: ServedBroker, readers: list[Reader]
) -> None:
    readers.append(Reader(tmp_path, url, "c1"))
    sent = produce(broker, 0, 10)
    eventually(lambda: values(*readers) == sent)
    readers.append(Reader(tmp_path, url, "c2"))
    numbers = count(10)

    def both_read() -> bool:
        nonlocal sent
        sent |= produce(broker, next(numbers), 1)
        return bool(readers[1].read())

    eventually(both_read)
    readers[0].end(signal.SIGKILL)
    sent |= produce(broker, 1_000, 10)
    eventually(lambda: values(*readers) == sent)
    assert {partition for partition, _ in readers[1].read()} == {0, 1, 2, 3}
    assert "Traceback" not in readers[1].errors.read_text()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_tree_shows_owners_and_offsets_and_a_consumer_that_is_interrupted_leaves(
    tmp_path: Path, url: str, broker: ServedBroker, readers: list[Reader]
) -> None:
    readers.append(Reader(tmp_path, url, "c1"))
    sent = produce(broker, 0, 5)
    eventually(lambda: values(*readers) == sent)

    def shown() -> bool:
        listed = odradek("metadata", "ls", "-r", f"/consumers/{GROUP}", "--metadata", url)
        paths = ("ids/readers_c1", "owners/t/3", "offsets/t/3")
        return all(f"/consumers/{GROUP}/{path}" in listed for path in paths)

    eventually(shown, what="the consumer's nodes: it commits its offsets after it has printed the records")
    assert "readers_c1-0" in odradek("metadata", "get", f"/consumers/{GROUP}/owners/t/3", "--metadata", url)
    readers[0].end(signal.SIGINT)
    left = odradek("metadata", "ls", "-r", f"/consumers/{GROUP}", "--metadata", url)
    assert "ids/readers_c1" not in left, "it has left at once"
    assert "owners/t/" not in left
    assert "offsets/t/3" in left


@pytest.mark.parametrize("url", ["zookeeper"], indirect=True)
@pytest.mark.needs("zookeeper")
def test_zkcli_shows_the_published_nodes(
    tmp_path: Path, url: str, broker: ServedBroker, readers: list[Reader], zookeeper: ZookeeperServer
) -> None:
    """ZooKeeper's own shell, which knows nothing of us."""
    readers.append(Reader(tmp_path, url, "c1"))
    sent = produce(broker, 0, 5)
    eventually(lambda: values(*readers) == sent)
    chroot = "/" + url.rpartition("/")[2]
    registration = zkcli(zookeeper, f"get -s {chroot}/consumers/{GROUP}/ids/readers_c1")
    (found,) = [json.loads(line) for line in registration.splitlines() if line.startswith("{")]
    assert (found["version"], found["subscription"], found["pattern"]) == (1, {"t": 1}, "static")
    claim = zkcli(zookeeper, f"get -s {chroot}/consumers/{GROUP}/owners/t/3")
    assert "readers_c1-0" in claim.splitlines()
    sessions = {re.search(r"ephemeralOwner = (0x[0-9a-f]+)", each)[1] for each in (registration, claim)}  # type: ignore[index]
    assert len(sessions) == 1
    assert sessions != {"0x0"}, "both are the consumer's, and end with its session"
    stored = eventually(lambda: committed(zookeeper, f"{chroot}/consumers/{GROUP}/offsets/t/3")) or ""
    assert "ephemeralOwner = 0x0" in stored, "it outlives the consumer"


@pytest.mark.parametrize("url", ["zookeeper"], indirect=True)
@pytest.mark.needs("zookeeper")
def test_a_rebalance_goes_on_when_zookeeper_has_died_and_is_back(
    tmp_path: Path, url: str, broker: ServedBroker, readers: list[Reader], zookeeper: ZookeeperServer
) -> None:
    """Another program holds a claim of the first consumer, which therefore attempts the rebalance again and again.

    The sessions outlast ZooKeeper's death. On a machine that is too busy, a short session of the first consumer may end
    before, and then the second one wants the claimed partition, too, and reads nothing.
    """
    chroot = "/" + url.rpartition("/")[2]
    znodes = KazooClient(hosts=zookeeper.address + chroot)
    znodes.start()
    try:
        znodes.create(f"/consumers/{GROUP}/owners/t/0", b"other-0", makepath=True)
        readers += [Reader(tmp_path, url, f"c{number}", session_ms=30_000) for number in (1, 2)]
        sent = produce(broker, 0, 5)
        later = {value for value in sent if value[0] in "23"}
        eventually(lambda: values(readers[1]) == later)
        assert values(readers[0]) == set()
        zookeeper.kill()
        try:
            during = produce(broker, 5, 5)
            eventually(lambda: values(readers[1]) >= {value for value in during if value[0] in "23"})
        finally:
            zookeeper.start()
        sent |= during | produce(broker, 10, 5)
        znodes.retry(znodes.delete, f"/consumers/{GROUP}/owners/t/0")
        eventually(lambda: values(*readers) == sent, within_s=60)
        eventually(lambda: owners(znodes) == [b"readers_c1-0"] * 2 + [b"readers_c2-0"] * 2, within_s=60)
    finally:
        znodes.stop()
        znodes.close()


def owners(znodes: KazooClient) -> list[bytes | None]:
    paths = [f"/consumers/{GROUP}/owners/t/{number}" for number in range(PARTITIONS)]
    return [znodes.retry(data, znodes, path) for path in paths]


def data(znodes: KazooClient, path: str) -> bytes | None:
    with contextlib.suppress(NoNodeError):
        return bytes(znodes.get(path)[0])
    return None


def committed(zookeeper: ZookeeperServer, path: str) -> str | None:
    """Return the node of an offset as ZooKeeper's shell shows it, when all five records but one are committed."""
    shown = zkcli(zookeeper, f"get -s {path}")
    return shown if {"4", "5"} & set(shown.splitlines()) else None


def zkcli(zookeeper: ZookeeperServer, command: str) -> str:
    """Return what ZooKeeper's shell prints."""
    server = find_zookeeper()
    assert server is not None
    shell = shutil.which("zkCli.sh") or str(Path(server).with_name("zkCli.sh"))
    run = [shell, "-server", zookeeper.address, *command.split()]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_group_moves_to_generation_2_where_it_stopped(
    tmp_path: Path, url: str, broker: ServedBroker, readers: list[Reader]
) -> None:
    readers.append(Reader(tmp_path, url, "c1", "kafka"))
    sent = produce(broker, 0, 5)
    eventually(lambda: values(*readers) == sent)
    readers[0].end(signal.SIGINT)
    more = produce(broker, 5, 5)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    found: set[str] = set()

    def has_all() -> bool:
        for message in consumer.consume(100, 1.0):
            value = message.value()
            assert value is not None
            found.add(value.decode())
        return found >= more

    try:
        eventually(has_all)
    finally:
        consumer.close()
    assert len(found - more) <= PARTITIONS, "a record of each partition was being processed"
