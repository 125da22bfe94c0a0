"""`odradek quotas`: each command names the entity, and a wrong one says what is expected."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main


def run(*arguments: str, fails: int = 0) -> str:
    result = CliRunner().invoke(main, ["quotas", *arguments])
    assert result.exit_code == fails, (result.output, result.exception)
    return result.output


def test_quotas_are_set_listed_and_removed(kafka: Any) -> None:
    server, client = ("-b", kafka.bootstrap_servers), ("--user", "eve", "--default-client-id")
    assert "eve" not in run("list", *server)
    set_ = run("set", "producer_byte_rate=1e6", "request_percentage=2.5", *client, *server)
    assert set_ == "user eve, client-id <default>: quotas set\n"
    listed = [line.split()[-2:] for line in run("list", *server).splitlines() if "eve" in line]
    assert listed == [["producer_byte_rate", "1000000"], ["request_percentage", "2.5"]]
    (line,) = run("list", "--json", *server).splitlines()
    assert json.loads(line) == {
        "entity": {"user": "eve", "client_id": None},
        "quotas": {"producer_byte_rate": 1e6, "request_percentage": 2.5},
    }
    run("remove", "request_percentage", *client, *server)
    assert "and nothing is removed" in run("remove", "request_percentage", *client, *server)
    assert "user eve, client-id <default>: quotas removed" in run("remove", *client, *server)
    assert "there are no quotas" in run("remove", *client, *server)
    assert "greater than 0" in run("set", "producer_byte_rate=-1", *client, *server, fails=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "a quota is of a user, a client-id, both, or an ip alone"),
        (("--user", ""), "the name of a user must not be empty"),
        (("--user", "a", "--default-user"), "user is given twice"),
        (("--ip", "10.0.0.1", "--client-id", "c"), "or an ip alone"),
    ],
)
def test_a_command_without_one_entity_is_wrong(arguments: tuple[str, ...], says: str) -> None:
    assert says in run("set", "producer_byte_rate=1", *arguments, fails=2)
    assert says in run("remove", *arguments, fails=2)


def test_a_value_is_a_number() -> None:
    assert "is a number, not 'fast'" in run("set", "producer_byte_rate=fast", "--user", "a", fails=2)
