"""Wildcards in names of topics and groups, and the names that a shell completes."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.cli.common import client_settings
from odradek.clients.blocking import Admin
from odradek.model import TopicPartition
from odradek.testing import Cluster

Odradek = Callable[..., Result]
TOPICS = ("orders-1", "orders-2", "payments", "returns")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster() as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic)
        yield cluster.bootstrap_servers


@pytest.fixture
def odradek(servers: str) -> Odradek:
    """Runs a command; it must succeed unless `fails` is its exit code."""

    def call(line: str, *, fails: int = 0) -> Result:
        result = CliRunner().invoke(main, [*line.split(), "-b", servers])
        assert result.exit_code == fails, result.output
        return result

    return call


def test_a_wildcard_names_the_topics_that_match_and_no_internal_one(odradek: Odradek, servers: str) -> None:
    odradek("groups reset g --topic payments --to-earliest --execute")  # creates __consumer_offsets
    shown = odradek("topics describe orders-? orders-1 --json").output
    assert [line.partition(",")[0] for line in shown.splitlines()] == ['{"name":"orders-1"', '{"name":"orders-2"']
    assert "no topic matches 'x*'" in odradek("topics describe x*", fails=1).output
    assert "no topic matches '__c*'" in odradek("topics delete __c*", fails=1).output
    assert odradek("topics delete x* --if-exists").output == ""
    odradek("topics create returns-2024")
    assert odradek("topics delete returns*").output == "topic returns deleted\ntopic returns-2024 deleted\n"
    odradek("topics create returns")


def test_a_group_whose_name_has_a_wildcard_is_only_itself(odradek: Odradek, servers: str) -> None:
    with Admin(servers) as admin:
        for group in ("nightly-1", "nightly-2", "nightly-*", "[x]1", "x2"):
            admin.alter_group_offsets(group, {TopicPartition("payments", 0): 0})
    assert odradek("groups delete nightly-*").output == "group nightly-* deleted\n"
    assert odradek("groups delete [x]?").output == "group [x]1 deleted\n"
    assert odradek("groups delete nightly-* x?").output.count("deleted") == 3
    assert "no group matches 'nightly-?'" in odradek("groups describe nightly-?", fails=1).output


def completed(*words: str) -> list[str]:
    *before, last = words
    return [each.value for each in ShellComplete(main, {}, "odradek", "_X").get_completions(before, last)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("topics", "describe", "or"), ["orders-1", "orders-2"]),
        (("topic", "delete", "orders-1", "p"), ["payments"]),
        (("configs", "describe", "--topic", "pay"), ["payments"]),
        (("partitions", "describe", "pay"), ["payments"]),
        (("produce", "pay"), ["payments"]),
        (("consume", "--json", "pay"), ["payments"]),
        (("groups", "desc"), ["describe"]),
    ],
)
def test_a_shell_completes_names_from_the_cluster_of_the_line(
    servers: str, words: tuple[str, ...], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed("-b", servers, *words) == found
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", servers)
    assert completed(*words) == found


def test_a_shell_completes_groups(servers: str, odradek: Odradek) -> None:
    odradek("groups reset readers --topic payments --to-earliest --execute")
    assert completed("-b", servers, "groups", "describe", "rea") == ["readers"]
    assert completed("-b", servers, "groups", "watch", "rea") == ["readers"]
    assert completed("-b", servers, "configs", "describe", "--group", "rea") == ["readers"]


def test_a_shell_gets_no_names_and_no_text_from_a_cluster_that_does_not_answer(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.cluster_names._COMPLETION_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert completed("-b", address, "topics", "describe", "o") == []
    assert completed("--profile", "nope", "topics", "describe", "o") == []
    assert capsys.readouterr() == ("", "")
    assert client_settings()["default_api_timeout_ms"] == 10_000
