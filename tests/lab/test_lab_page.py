"""docs/lab.md has every command of the lab, and its pictures are drawn; `tests/docs` runs the others."""

import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.cli import main
from tests.docs.fenced_blocks import blocks, examples, shell_steps
from tests.lab.lab_commands import lab

PAGE: Final = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
COMMANDS: Final = [command for example in examples("lab.md", "console") for command, _ in shell_steps(example)]


def test_the_page_has_each_command_of_the_lab() -> None:
    listed = set(re.findall(r"^  ([a-z-]+)  ", CliRunner().invoke(main, ["lab", "--help"]).stdout, re.MULTILINE))
    assert listed == set(re.findall(r"^\| `lab (\S+)` \|", PAGE, re.M))
    # What generations, play and transaction print changes with clients and brokers; replay reads a running group.
    assert listed - {"generations", "play", "replay", "transaction"} == {command.split()[2] for command in COMMANDS}


PICTURES: Final = re.findall(r"^odradek lab (.* --(?:picture|timeline) \S+)$", PAGE.split("\n## Pictures\n")[1], re.M)


@pytest.mark.parametrize("command", [each for each in PICTURES if "generations --members 10" not in each])
def test_the_commands_for_pictures_draw_them(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of large simulated groups take long: `make docs` runs them."""
    monkeypatch.chdir(tmp_path)
    lab(*shlex.split(command))
    assert (tmp_path / command.split()[-1]).read_text().rstrip().endswith("</svg>")


def test_the_notebook_s_lines_are_shown_as_pictures() -> None:
    (lines,) = blocks("lab.md", "python")
    *before, last = lines.strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(before), names)
    for line in (last, "compare(case)"):
        assert eval(line, names)._repr_html_().startswith("<svg")
