"""docs/coordinator.md: its tables and diagrams are made from the state machines, its transcripts are played (M6)."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordinators.coordinator_context import CoordinatorState
from odradek.broker.groups.machine.classic.classic_group import TRANSITIONS, State
from odradek.clients import ConsumerState
from odradek.clients.consumer.membership import classic_membership_manager as classic
from odradek.clients.consumer.membership import consumer_membership_manager as consumer
from odradek.simulation.world import World
from tests.docs.fenced_blocks import blocks

PATH = Path(__file__).parents[3] / "docs" / "coordinator.md"
PAGE = PATH.read_text()
GROUP_STATES = {
    State.EMPTY: "ready",
    State.STABLE: "ready",
    State.PREPARING_REBALANCE: "preparing a rebalance",
    State.COMPLETING_REBALANCE: "rebalancing",
}
"""SPEC 6's state of a loaded coordinator; a group in the state Dead has none."""
BROKER_EDGES = [
    ("down", "elected", "catching up"),
    ("catching up", "loaded", "ready"),
    ("catching up", "loading failed", "down"),
    *(
        (state, "resigned, or the broker died", "down")
        for state in ("catching up", *dict.fromkeys(GROUP_STATES.values()))
    ),
]
"""The changes of `CoordinatorContext.state`, as its module draws them."""
Edge = tuple[str, str, str]


def rows(head: str) -> list[list[str]]:
    """The rows of the table with this head."""
    lines = PAGE.splitlines()
    following = lines[lines.index(head) + 2 :]
    table = following[: next(number for number, line in enumerate(following) if line[:1] != "|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def edges(table: Iterable[list[str]]) -> list[Edge]:
    return [(each, row[1], row[2]) for row in table for each in row[0].split(", ")]


def diagram(table: Iterable[Edge]) -> str:
    """A Mermaid diagram of a state machine's table; one arrow for all events between two states."""
    labels: dict[tuple[str, str], list[str]] = {}
    for state, event, following in table:
        labels.setdefault((state, following), []).append(event)
    names = dict.fromkeys(name for pair in labels for name in pair)
    lines = [f'    state "{name}" as {name.replace(" ", "_")}' for name in names if " " in name]
    lines += [
        f"    {state.replace(' ', '_')} --> {following.replace(' ', '_')}: {' / '.join(events)}"
        for (state, following), events in labels.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def test_the_consumers_events_and_diagram_are_those_of_the_classic_state_machine() -> None:
    """Changes of the member's state within one of SPEC's states are not in the table."""
    made = {
        (str(classic.CONSUMER_STATES[state]), event, str(classic.CONSUMER_STATES[following]))
        for state, events in classic.TRANSITIONS.items()
        for event, following in events.items()
        if classic.CONSUMER_STATES[state] != classic.CONSUMER_STATES[following]
    }
    shown = edges(rows("| state | event | next state | what happens |"))
    assert len(shown) == len(set(shown))
    assert set(shown) == made
    assert diagram(shown) in PAGE


def test_the_table_of_consumer_states_names_each_state_of_both_protocols() -> None:
    table = rows("| `ConsumerState` | classic protocol | consumer protocol | it reads |")
    found = [
        (row[0].strip("`"), set(row[1].split(", ")), row[2].replace(", without a coordinator", "")) for row in table
    ]
    assert found == [
        (
            str(each),
            {str(state) for state, of in classic.CONSUMER_STATES.items() if of is each},
            ", ".join(state for state, of in consumer.CONSUMER_STATES.items() if each in of),
        )
        for each in ConsumerState
    ]
    assert set(consumer.CONSUMER_STATES) == set(consumer.ConsumerMemberState)


def test_the_coordinators_events_and_diagram_are_those_of_the_group_and_its_context() -> None:
    made = BROKER_EDGES + [
        (GROUP_STATES[state], event.value, GROUP_STATES[following])
        for state, events in TRANSITIONS.items()
        for event, following in events.items()
        if following in GROUP_STATES and GROUP_STATES[state] != GROUP_STATES[following]
    ]
    shown = edges(rows("| state | event | next state |"))
    assert sorted(shown) == sorted(made)
    assert diagram(shown) in PAGE
    assert {each.name for each in CoordinatorState} == {"LOADING", "ACTIVE", "FAILED", "CLOSED"}
    assert set(TRANSITIONS) - set(GROUP_STATES) == {State.DEAD}


def test_each_transcript_of_a_failover_is_on_the_page_and_each_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGE)
    assert [each for each in links if not (PATH.parent / each).is_file()] == []
    played = {path.name for path in (Path(__file__).parent / "machine/classic/transcripts").glob("failover_*.txt")}
    assert {Path(each).name for each in links if each.endswith(".txt")} == played


def test_the_pages_example_shows_what_a_member_reads(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("coordinator.md", "python")
    names: dict[str, Any] = {}
    exec(compile(code, str(PATH), "exec"), names)
    world = World(seed)

    async def scenario(_: World) -> None:
        await world.create_topic("flights", 2)
        names["Consumer"] = lambda *topics, bootstrap_servers, **given: world.consumer("reader", *topics, **given)
        async with asyncio.timeout(60):
            await names["read"](world.servers)

    world.play(scenario)
    assert "flights" in capsys.readouterr().out
