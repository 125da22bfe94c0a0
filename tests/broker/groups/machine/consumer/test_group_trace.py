"""The journal's report of a rebalance of a group of the consumer protocol (M7)."""

import json
from typing import Any

import pytest

from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.rebalance_trace import CauseKind, RebalanceCompleted, RebalanceOutcome
from odradek.broker.groups.rebalance_journal import to_json
from odradek.model import ErrorCode
from tests.broker.groups.machine.both_protocols.classic_client import ClassicClient
from tests.broker.groups.machine.consumer.protocol_world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    Member,
    image_of,
    settings,
    settle,
)


class Journal:
    """A coordinator whose rebalances are reported."""

    def __init__(self, topics: dict[str, int] | None = None, **more: Any) -> None:
        self.at = Coordinator(topics or {"t": 4}, consumer_settings=settings("uniform", traces_rebalances=True, **more))
        self.at.log.settings = GroupSettings(initial_rebalance_delay_ms=0, traces_rebalances=True)
        self.reports: list[RebalanceCompleted] = []
        self.at.log.on_result = lambda result: self.reports.extend(
            each for each in result.events if isinstance(each, RebalanceCompleted)
        )

    def last(self) -> RebalanceCompleted:
        return self.reports[-1]


def test_the_first_member_is_reported_at_once() -> None:
    journal = Journal()
    Member("one", ["t"]).heartbeat(journal.at)
    (report,) = journal.reports
    assert (report.group_type, report.generation, report.members) == ("consumer", 1, 1)
    assert (report.outcome, report.cause.kind, report.cause.text) == (
        RebalanceOutcome.STABLE,
        CauseKind.JOINED,
        "one joined",
    )
    assert (report.protocol_type, report.protocol_name) == ("consumer", "uniform")
    assert (report.moved, report.unowned_ms) == ((), {})


def test_a_report_names_the_awaited_members_and_the_revocation_that_delayed_it() -> None:
    journal = Journal()
    at, one, two = journal.at, Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    at.wait(1_000)
    two.heartbeat(at)
    at.wait(500)
    one.heartbeat(at)  # it is told to give two partitions up
    at.wait(700)
    one.revoke()
    one.heartbeat(at)
    at.wait(300)
    two.heartbeat(at)
    report = journal.last()
    assert (report.generation, report.outcome, report.duration_ms) == (2, RebalanceOutcome.STABLE, 1_500)
    assert report.cause.members == ("two",)
    assert report.waited_for == (("one", 1_200), ("two", 300)), "two could only wait until one had revoked"
    assert report.revocations == (("one", 700),)
    assert set(report.unowned_ms.values()) == {1_000}, "from the response that took them to the one that gave them"
    assert set(report.moved) == set(report.unowned_ms)
    assert len(report.moved) == 2
    shown = json.loads(to_json(report))
    assert (shown["group_type"], shown["revocations"]) == ("consumer", {"one": 700})


def test_a_silent_member_had_its_partitions_until_its_last_heartbeat() -> None:
    journal = Journal()
    at, one, two = journal.at, Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    for _ in range(5):
        at.wait(SESSION_MS // 4)
        one.heartbeat(at)
    report = journal.last()
    assert report.cause.kind is CauseKind.SESSION_EXPIRED
    assert (report.members, report.outcome) == (1, RebalanceOutcome.STABLE)
    assert set(report.unowned_ms.values()) == {SESSION_MS}
    assert len(report.moved) == 2


def test_a_member_that_never_revokes_is_reported_as_timed_out() -> None:
    journal = Journal()
    at, one, two = journal.at, Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    one.heartbeat(at)
    at.wait(REBALANCE_MS)
    two.heartbeat(at)
    overtaken, report = journal.reports[-2:]
    assert (overtaken.outcome, overtaken.cause.kind) == (RebalanceOutcome.OVERTAKEN, CauseKind.JOINED)
    assert (report.cause.kind, report.timed_out) == (CauseKind.REBALANCE_TIMEOUT, ("one",))
    assert two.count == 4


def test_leaving_changes_of_topics_and_of_subscriptions_are_causes() -> None:
    journal = Journal({"t": 2, "u": 2})
    at, one, two = journal.at, Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    one.topics = ("t", "u")
    settle(at, [one, two])
    assert journal.last().cause.kind is CauseKind.REJOINED
    at.log.change_image(image_of({"t": 4, "u": 2}), at.now_ms)
    settle(at, [one, two])
    assert journal.last().cause.kind is CauseKind.METADATA_CHANGED
    two.leave(at)
    settle(at, [one])
    assert (journal.last().cause.kind, journal.last().cause.text) == (CauseKind.LEFT, "two left")
    one.leave(at)
    assert (journal.last().outcome, journal.last().members) == (RebalanceOutcome.EMPTY, 0)


def test_a_static_member_that_returns_moves_nothing() -> None:
    journal = Journal()
    at, one = journal.at, Member("one", ["t"], instance_id="i")
    settle(at, [one])
    count = len(journal.reports)
    one.leave(at, epoch=-2)
    settle(at, [Member("again", ["t"], instance_id="i")])
    assert [each.moved for each in journal.reports[count:]] in ([], [()])


def test_members_that_join_together_are_one_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.groups.machine.consumer.group_update._ENTRIES_PER_MS", 0.001)
    journal = Journal()
    at = journal.at
    first = [Member("one", ["t"]), Member("two", ["t"])]
    settle(at, first)
    count = len(journal.reports)
    later = [Member("three", ["t"]), Member("four", ["t"])]
    waiting = [(member, object()) for member in later]
    for member, to in waiting:
        at.send(member.request(), to)
    at.log.commit()
    at.wait(1_000)
    for member, to in waiting:
        member.follow(at.reply(to))
    settle(at, [*first, *later])
    (report,) = journal.reports[count:]
    assert (report.cause.text, report.generation, report.members, report.assign_ms) == ("three joined", 4, 4, 1_000)


def test_classic_members_and_conversions_are_reported() -> None:
    journal = Journal()
    at, old, new = journal.at, ClassicClient("a", ["t"]), Member("one", ["t"])
    for _ in range(6):
        old.step(at)
    assert journal.last().group_type == "classic"
    for _ in range(6):
        for each in (new, old):
            each.heartbeat(at)
            each.revoke()
        at.wait(100)
    report = journal.last()
    assert (report.group_type, report.outcome, report.cause.text) == ("consumer", RebalanceOutcome.STABLE, "one joined")
    assert len(report.moved) == 2
    assert max(report.unowned_ms.values()) <= 300
    new.leave(at)
    for _ in range(6):
        old.step(at)
        at.wait(100)
    report = journal.last()
    assert (report.group_type, report.cause.text) == ("classic", "one left")
    assert (group := at.log.group(GROUP)) is not None
    assert group.ownership is not None


def test_a_rebalance_whose_records_are_lost_is_not_reported() -> None:
    journal = Journal()
    at, one = journal.at, Member("one", ["t"])
    at.log.refuses = True
    one.heartbeat(at)
    assert one.errors == [ErrorCode.coordinator_not_available]
    at.log.refuses = False
    assert journal.reports == []
    one.heartbeat(at)
    assert [each.members for each in journal.reports] == [1]


def test_nothing_is_traced_without_the_journal() -> None:
    at = Coordinator({"t": 1}, consumer_settings=settings("uniform"))
    events: list[object] = []
    at.log.on_result = lambda result: events.extend(result.events)
    settle(at, [Member("one", ["t"])])
    assert events == []
