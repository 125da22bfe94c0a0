"""docs/lab.md has every command of the lab, and its pictures are drawn; `tests/docs` runs the others."""

import logging
import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.cli import main
from tests.docs.fenced_blocks import blocks, examples, shell_steps
from tests.lab.lab_commands import lab, lab_json
from tests.lab.pages import DOCS

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


# ---- `odradek lab transaction` ---------------------------------------------------------------------------------------


def steps(*arguments: str) -> list[str]:
    """Return the steps, without times."""
    return [f"{each['source']}: {each['event']}" for each in lab_json("transaction", *arguments)]


@pytest.mark.long
def test_the_page_has_the_kinds_of_requests_and_states_of_the_default(tmp_path: Path) -> None:
    picture = tmp_path / "transaction.svg"
    shown = lab("transaction", "--picture", str(picture))
    # Times, and with them the order of some steps, change with the clients and the brokers.
    assert kinds(shown) == kinds((DOCS / "transactions.md").read_text()), "make docs writes it anew"
    assert picture.read_text().rstrip().endswith("</svg>")


def kinds(text: str) -> set[tuple[str, str]]:
    """Return the requests with their versions, and the states, in a printed transaction."""
    return set(re.findall(r"→ broker-\d: (\w+ v\d+)|: (\w+) is appended", text))


@pytest.mark.long
def test_read_committed_consumers_read_a_record_after_its_marker_and_others_before() -> None:
    level = logging.getLogger("odradek").level
    played = steps()
    for place in ("words-0", "words-1"):
        read = [number for number, each in enumerate(played) if f"reads {place}@0" in each]
        marked = next(number for number, each in enumerate(played) if f"the marker in {place} is committed" in each)
        assert played[read[0]].startswith("read_uncommitted")
        assert played[read[1]].startswith("read_committed")
        assert read[0] < marked < read[1]
    assert logging.getLogger("odradek").level == level


@pytest.mark.long
def test_read_committed_consumers_skip_an_aborted_transaction() -> None:
    played = steps("--abort", "--version", "1")
    assert [each for each in played if "reads" in each and each.startswith("read_committed")] == []
    assert "producer: AddPartitionsToTxn v3 words-0, words-1" in played
    assert any(each.endswith(": CompleteAbort is appended") for each in played)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "has", "end"),
    [
        (("--kill", "producer"), "successor: InitProducerId v6", "CompleteAbort"),
        (("--kill", "producer", "--two-phase"), "successor: EndTxn v5 commit", "CompleteCommit"),
        (("--two-phase", "--abort"), "producer: EndTxn v5 abort", "CompleteAbort"),
        (("--kill", "leader"), "producer: EndTxn v5 commit", "CompleteCommit"),
        (("--kill", "coordinator"), "producer: the commit is confirmed", "CompleteCommit"),
    ],
)
def test_a_transaction_ends_as_decided_whatever_is_killed(arguments: tuple[str, ...], has: str, end: str) -> None:
    shown = lab_json("transaction", *arguments)
    assert has in [f"{each['source']}: {each['event']}" for each in shown]
    assert end in [each["state"] for each in shown]
    stable, high_watermark = shown[-1]["offsets"]["words-0"]
    assert stable == high_watermark
