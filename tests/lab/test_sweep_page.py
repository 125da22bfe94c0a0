"""The example of docs/lab.md about sweeps prints what the page says."""

import shlex
from pathlib import Path
from typing import Final

import pytest
from fenced_blocks import examples, shell_steps
from lab_commands import lab
from sweeps import compute_here

pytestmark = pytest.mark.long

EXAMPLES: Final = [
    (command.removeprefix("odradek lab "), output)
    for example in examples("lab.md", "console")
    for command, output in shell_steps(example)
    if command.startswith("odradek lab sweep ") and "--dry-run" not in command
]


def test_the_tables_of_the_page_are_those_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (each.text for each in examples("lab.md", "toml") if each.title == "sweep.toml")
    compute_here(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == 2
    for command, expected in EXAMPLES:
        printed = lab(*shlex.split(command))
        assert without_times(printed) == without_times(expected)


def without_times(table: str) -> list[list[str]]:
    """Return the words of each line but the last, which is the processor time."""
    return [line.split()[:-1] for line in table.splitlines()]
