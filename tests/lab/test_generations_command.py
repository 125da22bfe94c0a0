"""`odradek lab generations` (M4, M6, M7)."""

import json

from click.testing import CliRunner, Result

from odradek.cli import main


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


def test_fewer_partitions_than_members_are_refused() -> None:
    assert (
        "3 members need at least as many partitions, not 2"
        in generations("--members", "3", "--partitions", "2", fails=2).output
    )
