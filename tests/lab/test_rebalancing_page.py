"""The pages' commands make the pictures that they show; `make docs` runs the same commands."""

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.cli import main
from tests.lab.pages import DOCS, commands_of, made_by, pictures_of, rerun

pytestmark = pytest.mark.long

PAGES: Final = ("rebalancing.md", "performance.md", "transactions.md")
COMMANDS: Final = [
    command for command in commands_of("rebalancing.md") if made_by(command) and command[1] != "generations"
]
"""Without `generations`, whose pictures change with the clients and the brokers: its own tests draw small groups."""


@pytest.mark.parametrize("page", PAGES)
def test_each_picture_of_a_page_is_made_by_one_of_its_commands_and_committed(page: str) -> None:
    made = [file for command in commands_of(page) for file in made_by(command)]
    assert {f"pictures/{file}" for file in made} == pictures_of(page)
    assert len(made) == len(set(made)), "two commands write one picture"
    for file in pictures_of(page):
        assert (DOCS / file).read_text().rstrip().endswith("</svg>")
        assert (DOCS / file).stat().st_size < 200_000


def test_no_picture_is_left_that_no_page_shows() -> None:
    shown = {Path(file).name for page in (*PAGES, "page.md") for file in pictures_of(page)}
    assert {path.name for path in (DOCS / "pictures").iterdir()} == shown


@pytest.mark.parametrize("command", COMMANDS, ids=[Path(made_by(command)[0]).stem for command in COMMANDS])
def test_a_command_of_the_page_makes_its_picture(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    (file,) = made_by(command)
    drawn = Path(file).read_text()
    assert drawn == (DOCS / "pictures" / file).read_text(), "make docs writes it anew"


def test_the_output_below_a_command_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```console\n$ odradek lab assign -t t=1 -m 1\nold\n\n$ odradek lab assign -t t=2 -m 1\nold\n```\nmore\n"
        "```\nodradek lab assign -t t=1 -m 1 --picture a.svg\nodradek lab assign -g g -b localhost:9092\n```\n"
    )
    monkeypatch.setattr("tests.lab.pages.DOCS", tmp_path)
    rerun("page.md", tmp_path)
    text = page.read_text()
    assert "old" not in text
    assert "$ odradek lab assign -t t=2 -m 1\nMEMBER  COUNT  PARTITIONS\nc0          2  t:0-1\nrange: 2" in text
    assert text.startswith("text\n```console\n$ odradek lab assign -t t=1 -m 1\nMEMBER")
    assert "```\nmore\n```\nodradek lab assign -t t=1 -m 1 --picture a.svg\n" in text
    assert (tmp_path / "a.svg").exists()
