"""`odradek lab generations` (M4, M6, M7)."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main

pytestmark = pytest.mark.long


def generations(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner().invoke(main, ["lab", "generations", *arguments])
    assert result.exit_code == fails, result.output
    return result


def test_each_generation_has_a_line() -> None:
    small = ("--members", "2", "--partitions", "4", "--change", "leaves")
    shown = [json.loads(line) for line in generations(*small, "--json").stdout.splitlines()]
    assert [each["generation"][0] for each in shown] == ["1", "2", "2", "3"]
    table = generations(*small).stdout.splitlines()
    assert table[0].split()[:3] == ["CHANGE", "MEMBERS", "GENERATION"]
    assert len(table) == 5


def test_a_member_that_dies_leaves_no_errors_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("odradek").level
    small = ("--members", "2", "--partitions", "4", "--change", "dies", "--generation", "range")
    assert generations(*small).stderr == "one dies, 2 members, generation 2 range: done\n"
    assert capsys.readouterr().err == ""
    assert logging.getLogger("odradek").level == level


def test_fewer_partitions_than_members_are_refused() -> None:
    assert (
        "3 members need at least as many partitions, not 2"
        in generations("--members", "3", "--partitions", "2", fails=2).output
    )


def test_pictures_of_the_costs_and_of_the_owners_are_drawn(tmp_path: Path) -> None:
    costs, owners = tmp_path / "costs.svg", tmp_path / "owners.svg"
    small = ("--members", "2", "--partitions", "4", "--change", "leaves")
    generations(*small, "--picture", str(costs), "--timeline", str(owners))
    assert costs.read_bytes().startswith(b"<?xml")
    assert owners.read_bytes().startswith(b"<?xml")


def test_a_timeline_of_several_changes_is_refused_before_the_work_begins(tmp_path: Path) -> None:
    file = str(tmp_path / "owners.svg")
    assert "--timeline shows one change of one group" in generations("--timeline", file, fails=2).stderr
    assert "let the name end in .svg" in generations("--picture", "costs.jpg", fails=2).stderr
