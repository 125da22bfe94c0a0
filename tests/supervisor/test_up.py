"""`odradek up` as a process: the ready line, its brokers as existing clients see them, deaths, and the end."""

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cli import main
from odradek.model import ConfigurationError
from odradek.supervisor import Restarts
from odradek.supervisor.security_files import security_files
from odradek.supervisor.supervisor import FIRST_DELAY_S, GOOD_WHILE_S, LONGEST_DELAY_S
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


# ---- Restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_each_delay_is_longer_up_to_a_limit() -> None:
    restarts = Restarts()
    delays = []
    for _ in range(12):
        restarts.started(0.0)
        delays.append(restarts.died(0.0))
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S


@pytest.mark.long
def test_after_a_good_while_the_delay_is_short_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.started(0.0)
        restarts.died(1.0)
    restarts.started(100.0)
    assert restarts.died(100.0 + GOOD_WHILE_S) == FIRST_DELAY_S
    restarts.started(0.0)
    assert restarts.died(1.0) == 2 * FIRST_DELAY_S


# ---- Administration --------------------------------------------------------------------------------------------------


def command_for(running: Up) -> Callable[..., list[Any]]:
    def command(*arguments: str, stdin: str = "") -> list[Any]:
        full = [sys.executable, "-m", "odradek", *arguments, "--bootstrap-server", running.bootstrap_servers]
        done = subprocess.run(full, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S * 2, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return command


@pytest.mark.long
def test_partitions_are_moved_led_again_and_a_broker_is_drained(tmp_path: Path):
    options = ("-o", "auto.leader.rebalance.enable=false", "-o", "offsets.topic.replication.factor=2")
    with up(tmp_path, "--brokers", "3", *options) as running:
        command = command_for(running)
        command("topics", "create", "t", "--partitions", "4", "--replication-factor", "2")
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(400):
            producer.produce("t", str(number).encode(), partition=number % 4)
        assert producer.flush(DEADLINE_S) == 0
        [plan] = command("partitions", "reassign", "--generate", "--topic", "t", "--broker-list", "0,1")
        command("partitions", "reassign", "--file", "-", "--wait", "--json", stdin=json.dumps(plan))
        verify = ("partitions", "reassign", "--file", "-", "--verify", "--json")
        eventually(
            lambda: [each["state"] for each in command(*verify, stdin=json.dumps(plan))] == ["done"] * 4,
            within_s=DEADLINE_S,
        )
        command("partitions", "elect", "--topic", "t")
        eventually(
            lambda: all(
                each["leader"] == each["replicas"][0] for each in command("partitions", "describe", "t", "--json")
            ),
            within_s=DEADLINE_S,
        )
        lines = command("brokers", "drain", "1", "--json")
        assert lines[-1] == {"broker_id": 1, "replica_count": 0}
        eventually(
            lambda: all(1 not in each["replicas"] for each in command("partitions", "describe", "--json")),
            within_s=DEADLINE_S,
        )
        for number in range(4):
            consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "g"})
            consumer.assign([TopicPartition("t", number, 0)])
            found = consumer.consume(100, DEADLINE_S)
            consumer.close()
            assert [int(each.value()) for each in found] == list(range(number, 400, 4))


# ---- `--secure` ------------------------------------------------------------------------------------------------------


def odradek(command: str) -> Result:
    return CliRunner().invoke(main, shlex.split(command)[1:])


@pytest.mark.long
def test_the_printed_command_works_also_after_a_restart_and_a_wrong_password_is_refused(tmp_path: Path) -> None:
    security, wrong = tmp_path / "security", tmp_path / "wrong.properties"
    for expected in ("", "orders"):
        with up(tmp_path / "data", "--brokers", "1", "--secure", str(security)) as running:
            command = running.process.stdout.readline().removeprefix("use: ")
            assert f"-b {running.bootstrap_servers} " in command
            listed = odradek(command)
            assert (listed.exit_code, expected in listed.output) == (0, True), listed.output
            if not expected:
                created = odradek(command.replace("topics list", "topics create orders"))
                assert created.exit_code == 0, created.output
                continue
            login = (security / "client.properties").read_text()
            wrong.write_text(login.replace(' password="', ' password="x'))
            refused = odradek(f"odradek topics list -b {running.bootstrap_servers} --command-config {wrong}")
            assert refused.exit_code == 1
            assert "PLAIN: Authentication failed: invalid credentials" in refused.output


@pytest.mark.long
def test_files_are_made_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    directory = tmp_path / "security"
    files = security_files(directory)
    made = {path: path.read_bytes() for path in directory.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert security_files(directory) == files
    (directory / "broker.pem").unlink()
    security_files(directory)
    changed = {path.name for path, content in made.items() if path.read_bytes() != content}
    assert changed == {"broker.pem"}
    files.client.unlink()
    security_files(directory)
    password = files.client.read_text().partition(' password="')[2].partition('"')[0]
    assert f'user_admin="{password}"' in files.broker.read_text(), "a new password is one of both files"


@pytest.mark.long
def test_files_that_are_no_authority_are_refused(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"ca\.key are not an authority's certificate and key: .* remove both"):
        security_files(tmp_path)


@pytest.mark.long
def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigurationError, match=r"need trustme, .*: pip install 'odradek\[security\]'"):
        security_files(tmp_path)


@pytest.mark.long
def test_the_page_requires_a_login_of_every_local_user_and_shows_no_tree(tmp_path: Path) -> None:
    security = tmp_path / "security"
    arguments = ("--brokers", "1", "--secure", str(security), "--page", "127.0.0.1:0")
    with up(tmp_path / "data", *arguments) as running:
        running.process.stdout.readline()
        address = running.process.stdout.readline().strip().removeprefix("page: ").rstrip("/")
        with urlopen(f"{address}/topics") as answer:
            assert answer.url == f"{address}/login?next=%2Ftopics"
            form = answer.read().decode()
        token = form.partition('name="csrf" value="')[2].partition('"')[0]
        password = (security / "client.properties").read_text().partition(' password="')[2].partition('"')[0]
        browser = build_opener(HTTPCookieProcessor())

        def login(password: str) -> Request:
            fields = urlencode({"csrf": token, "user": "admin", "password": password}).encode()
            return Request(f"{address}/login", fields, {"origin": address})

        with pytest.raises(HTTPError, match="401"):
            browser.open(login("wrong"))
        assert browser.open(login(password)).status == 200
        assert "odradek page --metadata" in browser.open(f"{address}/metadata").read().decode()
