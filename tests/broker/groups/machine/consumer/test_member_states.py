"""The states of a member of the consumer protocol, each with every event: this table is the one in the docs (M7)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.groups.machine.consumer.member import MemberState
from odradek.model import ErrorCode
from tests.broker.groups.machine.consumer.protocol_world import (
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    Member,
    settings,
    settle,
)
from tests.broker.groups.machine.consumer.test_model_invariants import check_group

DOCS = Path(__file__).parents[5] / "docs" / "groups.md"
STATES = (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)
GONE = "removed"
SAME = "="


class Scene:
    """A group in which one member, the subject, is in a state. All others have done what they were told."""

    def __init__(self, state: MemberState) -> None:
        self.at = Coordinator({"t": 4, "u": 4}, consumer_settings=settings("uniform"))
        first, second = (Member(name, ["t", "u"]) for name in ("first", "second"))
        settle(self.at, [first, second])
        self.at.wait(10)  # targets are computed at most once a ms
        late = Member("late", ["t", "u"])
        self.subject, self.others = first, [second]
        if state is MemberState.UNREVOKED_PARTITIONS:
            late.heartbeat(self.at)
            first.heartbeat(self.at)
            self.others.append(late)
        elif state is MemberState.UNRELEASED_PARTITIONS:
            late.heartbeat(self.at)
            self.subject, self.others = late, [first, second]
        assert self.state() == state.name

    def state(self) -> str:
        member = self.at.group.members.get(self.subject.name)
        return GONE if member is None else member.state.name

    def keep_others(self, ms: int) -> None:
        """Let time pass in which the others send heartbeats, and revoke nothing."""
        for _ in range(5):
            self.at.wait(ms // 5)
            for each in self.others:
                each.heartbeat(self.at)


def joins(scene: Scene) -> None:
    scene.at.wait(10)
    Member("another", ["t", "u"]).heartbeat(scene.at)
    scene.subject.heartbeat(scene.at)


def reports_revocation(scene: Scene) -> None:
    scene.subject.revoke()
    scene.subject.heartbeat(scene.at)


def others_revoke(scene: Scene) -> None:
    for each in scene.others:
        each.heartbeat(scene.at)
        each.revoke()
        each.heartbeat(scene.at)
    scene.subject.heartbeat(scene.at)


def unsubscribes(scene: Scene) -> None:
    scene.at.wait(10)
    scene.subject.topics = ("u",) if scene.subject.numbers("t") else ("t",)
    scene.subject.heartbeat(scene.at)


def joins_again(scene: Scene) -> None:
    scene.subject.epoch, scene.subject.owned, scene.subject.assignment = 0, {}, {}
    scene.subject.heartbeat(scene.at)


def wrong_epoch(scene: Scene) -> None:
    scene.subject.epoch += 7
    scene.subject.heartbeat(scene.at)
    assert scene.subject.errors == [ErrorCode.fenced_member_epoch]


def rebalance_timeout(scene: Scene) -> None:
    for _ in range(5):
        scene.at.wait(REBALANCE_MS // 5)
        for each in (scene.subject, *scene.others):
            each.heartbeat(scene.at)


EVENTS: dict[str, tuple[Callable[[Scene], object], tuple[str, str, str]]] = {
    "a heartbeat, nothing is new": (lambda scene: scene.subject.heartbeat(scene.at), (SAME, SAME, SAME)),
    "another member joins": (joins, ("UNREVOKED_PARTITIONS", SAME, SAME)),
    "it reports that it has revoked": (reports_revocation, (SAME, "STABLE", SAME)),
    "the others have revoked": (others_revoke, (SAME, SAME, "STABLE")),
    "it unsubscribes from a topic": (unsubscribes, ("UNREVOKED_PARTITIONS", SAME, SAME)),
    "it lost its state and joins again": (joins_again, (SAME, "STABLE", SAME)),
    "its epoch is wrong (FENCED_MEMBER_EPOCH)": (wrong_epoch, (SAME, SAME, SAME)),
    "its rebalance timeout passes": (rebalance_timeout, (SAME, GONE, SAME)),
    "its session expires": (lambda scene: scene.keep_others(SESSION_MS), (GONE, GONE, GONE)),
    "it leaves": (lambda scene: scene.subject.leave(scene.at), (GONE, GONE, GONE)),
    "the coordinator moves": (
        lambda scene: scene.at.log.lose(scene.at.now_ms, ErrorCode.not_coordinator),
        (SAME, SAME, SAME),
    ),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_event_in_every_state(state: MemberState, event: str) -> None:
    scene = Scene(state)
    act, after = EVENTS[event]
    act(scene)
    expected = after[STATES.index(state)]
    assert scene.state() == (state.name if expected == SAME else expected)
    check_group(scene.at.group)


def test_the_table_of_a_members_states_in_the_docs_is_this_one() -> None:
    header = f"| event | {' | '.join(state.name for state in STATES)} |"
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = lines.index(header) + 2
    expected = [f"| {event} | {' | '.join(after)} |" for event, (_, after) in EVENTS.items()]
    assert lines[start : start + len(expected)] == expected
    assert lines[start + len(expected)] == ""
