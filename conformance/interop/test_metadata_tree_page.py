"""M9, M10: every command of docs/metadata-tree.md does what the page says, in `odradek metadata` and in `zkCli.sh`."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.cli import main
from odradek.testing import eventually
from odradek.testing.servers.zookeeper import find_zookeeper
from tests.docs.fenced_blocks import examples

pytestmark = pytest.mark.long

OFFSET: Final = "/consumers/readers/offsets/flights/0"
LIMIT_S: Final = 60


def commands(prefix: str) -> list[str]:
    """The lines of the page's examples that begin so, without the prefix and comments."""
    lines = [line for example in examples("metadata-tree.md") for line in example.text.splitlines()]
    return [line.removeprefix(prefix).partition("  #")[0] for line in lines if line.startswith(prefix)]


class Shell(Protocol):
    """Something that runs the commands."""

    def run(self, command: str) -> None:
        """Run one command; fail if it fails."""


class OdradekShell:
    """`odradek metadata`, in a folder with `odradek-data`."""

    def run(self, command: str) -> None:
        result = CliRunner().invoke(main, ["metadata", *shlex.split(command)])
        assert result.exit_code == 0, (command, result.output)


class ZookeeperShell:
    """One session of ZooKeeper's own shell."""

    def __init__(self, address: str, output: Path) -> None:
        server = find_zookeeper()
        assert server is not None
        shell = shutil.which("zkCli.sh") or str(Path(server).with_name("zkCli.sh"))
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [shell, "-server", address], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT
            )

    def run(self, command: str) -> None:
        before = self._output.read_text().count("Sync is OK")
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\nsync /\n".encode())
        self.process.stdin.flush()
        eventually(lambda: self._output.read_text().count("Sync is OK") > before, within_s=LIMIT_S, what=command)
        said = self._output.read_text()
        assert not re.search("(?i)does not exist|already exists|not valid|command failed|exception|usage", said), said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=LIMIT_S)


class Page:
    """The cluster and the consumer of the page; `url` is the tree's."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._started: list[subprocess.Popen[bytes]] = []
        up = ["up", "--brokers", "2", "--port", "0", "--metadata", url]
        options = ["-o", "offsets.topic.replication.factor=1", "-o", "group.initial.rebalance.delay.ms=0"]
        served = self._start([*up, *options], folder / "up.err", stdout=subprocess.PIPE)
        assert served.stdout is not None
        self.servers = served.stdout.readline().decode().removeprefix("ready: ").strip()
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        for command in commands("odradek topics "):
            self.odradek(["topics", *shlex.split(command), "-b", self.servers])
        (consume,) = commands("odradek consume ")
        self._said = folder / "consumer.err"
        arguments = [url if each.startswith("sqlite:") else each for each in shlex.split(consume)]
        self._consumer = self._start(["consume", *arguments, "-X", "auto.commit.interval.ms=100"], self._said)
        eventually(lambda: b"readers_alpha-0 owns flights-0, flights-1" in self._said.read_bytes(), within_s=LIMIT_S)
        ls = ["metadata", "ls", "-r", "/consumers/readers", "--metadata", url]
        eventually(lambda: OFFSET in self.odradek(ls), within_s=LIMIT_S, what="the consumer's first commit")

    def _start(self, arguments: list[str], errors: Path, stdout: int | None = None) -> "subprocess.Popen[bytes]":
        with errors.open("wb") as stderr:
            process = subprocess.Popen([sys.executable, "-m", "odradek", *arguments], stdout=stdout, stderr=stderr)
        self._started.append(process)
        return process

    def odradek(self, arguments: list[str]) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, (arguments, result.output)
        return result.stdout

    def value(self, path: str) -> str:
        return str(json.loads(self.odradek(["metadata", "get", path, "--json", "--metadata", self.url]))["data"])

    def stop_consumer(self) -> None:
        self._consumer.send_signal(signal.SIGINT)
        self._consumer.wait(LIMIT_S)

    def close(self) -> None:
        for process in reversed(self._started):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
                process.communicate(timeout=LIMIT_S)

    # ---- what the commands have done --------------------------------------------------------------------------------

    def has_happened(self, command: str) -> Callable[[], bool]:
        """Return whether a command has had its effect, as a function; one that only reads has none."""
        effects = {
            "create /admin/reassign_partitions": lambda: self._replicas() == [[0, 1], [0, 1]],
            "create /admin/preferred_replica_election": lambda: self._leaders() == [0, 0],
            "set /config/topics/flights": lambda: self._retention_ms() == "3600000",
            f"set {OFFSET}": lambda: self.value(OFFSET) == "0",
            "create /admin/delete_topics/flights": lambda: "flights" not in self._topics(),
            "set /admin/delete_topics": lambda: "trains" not in self._topics(),
            "delete /controller": lambda: self.value("/controller_epoch") == "2",
        }
        verb, *arguments = shlex.split(command.replace("--force ", ""))
        if verb in {"get", "ls"}:
            return lambda: True
        return effects[f"{verb} {arguments[0]}"]

    def _topics(self) -> dict[str, Any]:
        return dict(self.admin.list_topics(timeout=LIMIT_S).topics)

    def _partitions(self) -> list[Any]:
        return [each for _, each in sorted(self._topics()["flights"].partitions.items())]

    def _replicas(self) -> list[list[int]]:
        return [each.replicas for each in self._partitions()]

    def _leaders(self) -> list[int]:
        return [each.leader for each in self._partitions()]

    def _retention_ms(self) -> str:
        resource = ConfigResource(ResourceType.TOPIC, "flights")
        return str(self.admin.describe_configs([resource])[resource].result(LIMIT_S)["retention.ms"].value)


@pytest.fixture
def new_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Page]]:
    """Starts the page's cluster in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    started: list[Page] = []

    def start(url: str) -> Page:
        started.append(Page(tmp_path, url))
        return started[-1]

    yield start
    for page in started:
        page.close()


def play(page: Page, shell: Shell, lines: list[str]) -> None:
    """Run the page's commands in their order, and wait for each one's effect."""
    stopped = False
    for line in lines:
        if "/offsets/" in line and not stopped:
            page.stop_consumer()
            stopped = True
        shell.run(line)
        eventually(page.has_happened(line), within_s=LIMIT_S, what=line)
    assert stopped


def test_the_page_has_the_same_commands_for_both_shells() -> None:
    ours, theirs = commands("odradek metadata "), commands("[zk] ")
    assert [each.replace("--force ", "") for each in ours] == theirs
    assert len(theirs) > 15


def test_the_commands_of_the_page_work_on_sqlite(new_page: Callable[[str], Page]) -> None:
    page = new_page("sqlite:///odradek-data/metadata.sqlite")
    play(page, OdradekShell(), commands("odradek metadata "))


@pytest.mark.needs("zookeeper")
def test_the_commands_of_the_page_work_in_zookeepers_shell(
    new_page: Callable[[str], Page], tmp_path: Path, zookeeper: Any
) -> None:
    page = new_page(f"zookeeper://{zookeeper.address}/page")
    shell = ZookeeperShell(f"{zookeeper.address}/page", tmp_path / "zkCli.out")
    try:
        play(page, shell, commands("[zk] "))
    finally:
        shell.close()
    said = (tmp_path / "zkCli.out").read_text()
    assert all(text in said for text in ('"brokerid":', "readers_alpha-0", '"subscription":{"flights":1}'))
