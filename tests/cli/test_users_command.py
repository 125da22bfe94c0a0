"""`odradek users`: passwords come from a file or standard input, and the first user needs no broker."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def run(*arguments: str, text: str = "", fails: int = 0) -> str:
    result = CliRunner().invoke(main, ["users", *arguments], input=text)
    assert result.exit_code == fails, (result.output, result.exception)
    return result.output


def test_a_user_is_added_listed_and_deleted(kafka: Any) -> None:
    server = ("-b", kafka.bootstrap_servers)
    assert "ann authenticates by SCRAM-SHA-256 and SCRAM-SHA-512" in run("add", "ann", *server, text="secret\n")
    (line,) = run("list", "ann", "--json", *server).splitlines()
    assert [each["mechanism"] for each in json.loads(line)["credentials"]] == MECHANISMS
    assert [line.split() for line in run("list", *server).splitlines() if "ann" in line] == [
        ["ann", each, "4096"] for each in MECHANISMS
    ]
    assert "by SCRAM-SHA-256" in run("delete", "ann", "-m", "SCRAM-SHA-256", *server)
    assert "by SCRAM-SHA-512" in run("delete", "ann", *server)
    assert "has no such credential" in run("delete", "ann", *server, fails=1)


def test_the_first_user_is_written_to_a_new_tree(tmp_path: Path) -> None:
    tree = f"sqlite:///{tmp_path}/metadata.sqlite"
    (tmp_path / "password").write_text("secret\n")
    run("add", "ann/b", "--metadata", tree, "--password-file", str(tmp_path / "password"), "-m", MECHANISMS[0])
    run("add", "ann/b", "--metadata", tree, "-m", MECHANISMS[1], "--iterations", "8192", text="secret")
    shown = CliRunner().invoke(main, ["metadata", "get", "/config/users/ann%2Fb", "--metadata", tree]).output
    assert all(each in shown for each in MECHANISMS)
    assert "secret" not in shown


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_password_is_refused(text: str, tmp_path: Path) -> None:
    assert "not empty" in run("add", "ann", "--metadata", f"sqlite:///{tmp_path}/t", text=text, fails=2)
    assert not (tmp_path / "t").exists()
