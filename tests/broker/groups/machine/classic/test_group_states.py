"""The table of states in the docs is the code's."""

from pathlib import Path

from odradek.broker.groups.machine import TRANSITIONS, CauseKind, State

DOCS = Path(__file__).parents[5] / "docs" / "groups.md"


def test_the_table_of_states_in_the_docs_is_made_from_the_code() -> None:
    expected = [
        f"| {state} | {event.value} | {after} |"
        for state, events in TRANSITIONS.items()
        for event, after in events.items()
    ]
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = lines.index("| state | event | next state |") + 2
    assert lines[start : start + len(expected)] == expected
    assert lines[start + len(expected)] == ""


def test_every_state_but_dead_can_be_left_and_every_cause_is_in_the_docs() -> None:
    assert [state for state, events in TRANSITIONS.items() if not events] == [State.DEAD]
    text = DOCS.read_text(encoding="utf-8")
    assert [kind for kind in CauseKind if f"`{kind}`" not in text] == []
