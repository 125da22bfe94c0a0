"""`odradek lab transaction`; `make docs` writes its output into docs/transactions.md."""

import logging
import re
from pathlib import Path

import pytest

from tests.lab.lab_commands import lab, lab_json
from tests.lab.pages import DOCS

pytestmark = pytest.mark.long


def steps(*arguments: str) -> list[str]:
    """Return the steps, without times."""
    return [f"{each['source']}: {each['event']}" for each in lab_json("transaction", *arguments)]


def test_the_page_has_the_kinds_of_requests_and_states_of_the_default(tmp_path: Path) -> None:
    picture = tmp_path / "transaction.svg"
    shown = lab("transaction", "--picture", str(picture))
    # Times, and with them the order of some steps, change with the clients and the brokers.
    assert kinds(shown) == kinds((DOCS / "transactions.md").read_text()), "make docs writes it anew"
    assert picture.read_text().rstrip().endswith("</svg>")


def kinds(text: str) -> set[tuple[str, str]]:
    """Return the requests with their versions, and the states, in a printed transaction."""
    return set(re.findall(r"→ broker-\d: (\w+ v\d+)|: (\w+) is appended", text))


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


def test_read_committed_consumers_skip_an_aborted_transaction() -> None:
    played = steps("--abort", "--version", "1")
    assert [each for each in played if "reads" in each and each.startswith("read_committed")] == []
    assert "producer: AddPartitionsToTxn v3 words-0, words-1" in played
    assert any(each.endswith(": CompleteAbort is appended") for each in played)


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
