"""M4: SPEC 4's experiments with `odradek consume --zookeeper`, as docs/zookeeper-consumer.md has them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.interop.existing_clients import BROKER_OPTIONS
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "odradek"]


class Terminal:
    """One `odradek consume --zookeeper`."""

    def __init__(self, folder: Path, name: str, *arguments: str, group: str = "readers") -> None:
        self.name = name
        self._output, self._errors = folder / f"{group}.{name}.out", folder / f"{group}.{name}.err"
        url = f"sqlite:///{folder}/data/metadata.sqlite"
        quick = ("-X", "rebalance.backoff.ms=200", "-X", "rebalance.max.retries=100")
        given = ("--zookeeper", url, "-g", group, "-X", f"consumer.id={name}", *quick, *arguments)
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen([*COMMAND, "consume", *given], stdout=output, stderr=errors)

    @property
    def read(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def said(self) -> list[str]:
        return self._errors.read_text().splitlines()

    @property
    def owned(self) -> int:
        """The number of partitions that it said last that it owns; -1 if it has not said it yet."""
        lines = [line for line in self.said if " owns " in line]
        return lines[-1].count(" t-") if lines else -1

    def leave(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 128 + signal.SIGINT, self.said


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "data", options=BROKER_OPTIONS) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap_servers})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(20)
        yield served


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed with the test."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.process.kill()
        terminal.process.wait(20)


@pytest.mark.usefixtures("broker")
def test_four_members_join_one_by_one_and_three_leave(tmp_path: Path, terminals: list[Terminal]) -> None:
    for name, shares in (("c1", [3]), ("c2", [1, 2]), ("c3", [1, 1, 1]), ("c4", [0, 1, 1, 1])):
        terminals.append(Terminal(tmp_path, name, "t", "--verbose"))
        eventually(lambda: sorted(each.owned for each in terminals) == shares, within_s=60)  # noqa: B023 - at once
    assert "odradek: readers_c4 owns no partition" in terminals[3].said
    assert "odradek: No broker partitions consumed by consumer thread readers_c4-0 for topic t" in terminals[3].said
    for left, shares in ((1, [1, 1, 1]), (2, [1, 2]), (3, [3])):
        terminals[left - 1].leave()
        eventually(lambda: sorted(each.owned for each in terminals[left:]) == shares, within_s=60)  # noqa: B023
    terminals[3].leave()


def test_a_count_ends_the_command_and_the_next_one_goes_on_after_it(
    tmp_path: Path, broker: ServedBroker, terminals: list[Terminal]
) -> None:
    produce = [*COMMAND, "produce", "t", "-b", broker.bootstrap_servers, "-p", "0"]
    subprocess.run(produce, input=b"1\n2\n3\n", check=True, timeout=60)
    filtered = ("--whitelist", "t|u", "--threads", "2", "--from-beginning")
    terminals.append(Terminal(tmp_path, "c1", *filtered, "-c", "2"))
    assert terminals[0].process.wait(60) == 0
    assert terminals[0].read == ["1", "2"]
    terminals.append(Terminal(tmp_path, "c1", *filtered, "-c", "1", "--json"))
    assert terminals[1].process.wait(60) == 0
    assert [json.loads(line)["offset"] for line in terminals[1].read] == [2]
    assert "odradek: readers_c1-1 owns t-2" in terminals[1].said


def test_a_message_reaches_every_group_and_one_member_of_each(
    tmp_path: Path, broker: ServedBroker, terminals: list[Terminal]
) -> None:
    """Three messages with keys that fall on three partitions, by the partitioner of Kafka 0.8."""
    shown = ("t", "--from-beginning", "-f", "%k %s\\n")
    terminals += [Terminal(tmp_path, name, *shown, group="three") for name in ("d1", "d2", "d3")]
    alone = Terminal(tmp_path, "c1", *shown, group="one")
    terminals.append(alone)
    eventually(lambda: [each.owned for each in terminals] == [1, 1, 1, 3], within_s=60)
    produce = [*COMMAND, "produce", "t", "-b", broker.bootstrap_servers, "-K", ":", "-X", "partitioner.class=legacy"]
    subprocess.run(produce, input=b"1:a\n2:b\n3:c\n", check=True, timeout=60)
    eventually(lambda: len(alone.read) == 3 and all(each.read for each in terminals), within_s=60)
    assert sorted(alone.read) == ["1 a", "2 b", "3 c"]
    assert sorted(each.read for each in terminals[:3]) == [["1 a"], ["2 b"], ["3 c"]]
