"""The commands of docs/lab.md print what the page says."""

import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from lab_commands import lab
from test_lab_live import living_group

from odradek.cli import main

PAGE: Final = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
BLOCKS: Final = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES: Final = [example for block in BLOCKS for example in re.split(r"\n(?=\$ )", block)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_command_of_the_page_prints_what_stands_below_it(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, _, expected = example.partition("\n")
    for name, text in zip(("group.toml", "sweep.toml"), re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL), strict=True):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, shlex.split(command.removeprefix("$ odradek ")))
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip("\n") == expected.rstrip("\n")


def test_the_page_has_each_command_of_the_lab() -> None:
    listed = set(re.findall(r"^  ([a-z-]+)  ", CliRunner().invoke(main, ["lab", "--help"]).stdout, re.MULTILINE))
    assert listed == set(re.findall(r"^\| `lab (\S+)` \|", PAGE, re.M))
    # The figures of generations change with the clients and the brokers; replay reads a running group.
    assert listed - {"generations", "replay"} == {example.split()[3] for example in EXAMPLES}


def test_the_commands_for_a_running_group_run(servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^odradek lab (.*localhost:9092.*)$", PAGE, re.MULTILINE)
    gaps = "partition-seconds without an owner"
    expected = ("range: 4 partitions", "cooperative-sticky", "range gives readers-0 to", "for how long: ", gaps, gaps)
    with living_group(servers, "readers"):
        for command, text in zip(commands, expected, strict=True):
            named = command.replace("localhost:9092", servers).replace("flights-0", "readers-0")
            assert text in lab(*shlex.split(named))
    assert (tmp_path / "readers.svg").exists()


PICTURES: Final = re.findall(r"^odradek lab (.* --(?:picture|timeline) \S+)$", PAGE.split("\n## Pictures\n")[1], re.M)


@pytest.mark.parametrize("command", [each for each in PICTURES if "generations --members 10" not in each])
def test_the_commands_for_pictures_draw_them(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of large simulated groups take long: `make docs` runs them."""
    monkeypatch.chdir(tmp_path)
    lab(*shlex.split(command))
    assert (tmp_path / command.split()[-1]).read_text().rstrip().endswith("</svg>")


def test_the_notebook_s_lines_run() -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    *_, run, comparison = lines.strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(line for line in lines.splitlines() if line not in {run, comparison}), names)
    for line in (run, comparison):
        assert eval(line, names)._repr_html_().startswith("<svg")
