"""Regular expressions are resolved apart from heartbeats, at most every 10 s, in short steps (M7, KIP-848)."""

from typing import Any

import pytest

from odradek.broker.groups.machine.consumer import regex_resolver
from odradek.broker.groups.machine.consumer.regex_resolver import MIN_INTERVAL_MS, NAMES_PER_STEP
from odradek.model import ErrorCode, KafkaError
from tests.broker.groups.machine.consumer.protocol_world import (
    Coordinator,
    Member,
    image_of,
    pass_time,
    settle,
    topic_id,
)


class Matching:
    """Notes the names of each match, and matches none of `t…`, which costs no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, set[str]]] = []
        monkeypatch.setattr(regex_resolver, "resolve_regex", self._resolve)

    def _resolve(self, regex: str, image: Any, names: Any, denied: Any) -> tuple[str, ...]:
        self.calls.append((regex, set(names)))
        return tuple(name for name in names if name[0] != "t")

    def take(self) -> list[tuple[str, set[str]]]:
        taken, self.calls = self.calls, []
        return taken


def test_literal_topics_are_assigned_before_expressions_are_resolved() -> None:
    at = Coordinator({"t": 1, "logs-a": 1, "logs-b": 1, "metrics": 1})
    one = Member("one", ["t"], regex="logs-.*")
    assert one.heartbeat(at).member_epoch == 1
    assert (one.numbers("t"), one.numbers("logs-a")) == ([0], [])
    settle(at, [one])
    assert (one.numbers("t"), one.numbers("logs-a"), one.numbers("logs-b"), one.numbers("metrics")) == (
        [0],
        [0],
        [0],
        [],
    )
    assert at.group.regexes == {"logs-.*": ("logs-a", "logs-b")}


def test_a_second_expression_for_the_same_topics_gets_its_share() -> None:
    at = Coordinator({"logs-a": 6})
    members = [Member("one", regex="logs-.*"), Member("two", regex="logs-[a-z]")]
    settle(at, members[:1])
    members[1].heartbeat(at)
    pass_time(at, members, MIN_INTERVAL_MS)
    settle(at, members)
    assert [member.count for member in members] == [3, 3]


def test_an_expression_matches_topics_that_come_later_and_not_those_that_went() -> None:
    at = Coordinator({"logs-a": 1, "t": 1})
    one, none = Member("one", regex="logs-.*"), Member("two", regex="none-.*")
    settle(at, [one, none])
    assert (one.count, none.count) == (1, 0)
    at.log.change_image(image_of({"logs-b": 2, "none-yet": 2, "t": 1}), at.now_ms)
    pass_time(at, [one, none], MIN_INTERVAL_MS)
    assert (one.owned, none.numbers("none-yet")) == ({topic_id("logs-b"): frozenset({0, 1})}, [0, 1])
    assert at.group.regexes == {"logs-.*": ("logs-b",), "none-.*": ("none-yet",)}


def test_ten_thousand_topics_may_match_one_expression() -> None:
    at = Coordinator({f"t{number}": 1 for number in range(10_000)})
    one = Member("one", regex="t.*")
    one.heartbeat(at)
    pass_time(at, [one], 4_000)  # here a second has one step
    assert one.count == 10_000


def test_expressions_are_resolved_every_ten_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    at, matching = Coordinator({"a": 1}), Matching(monkeypatch)
    one = Member("one", regex="a")
    settle(at, [one])
    assert matching.take() == [("a", {"a"})]
    two = Member("two", regex="b")
    for number in range(2):
        at.log.change_image(image_of({"a": 1, f"new{number}": 1}), at.now_ms)
        settle(at, [one, two])
    assert matching.take() == []
    pass_time(at, [one, two], MIN_INTERVAL_MS)
    assert sorted(matching.take()) == [("a", {"new1"}), ("b", {"a", "new1"})]


def test_names_are_matched_again_when_permissions_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    at, matching = Coordinator({"a": 1, "b": 1}), Matching(monkeypatch)
    one = Member("one", regex="a")
    settle(at, [one])
    at.log.change_image(image_of({"a": 2, "b": 1}), at.now_ms)
    pass_time(at, [one], MIN_INTERVAL_MS)
    assert [names for _, names in matching.take() if names] == [{"a", "b"}], "no topic came"
    pass_time(at, [one], 600_000)
    assert ("a", {"a", "b"}) in matching.take()


def test_a_hundred_expressions_of_ten_thousand_topics_are_resolved_in_short_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, matching = Coordinator({f"t{number}": 1 for number in range(10_000)}), Matching(monkeypatch)
    members = [Member(f"m{number}", ["t1"], regex=f"x{number}") for number in range(100)]
    for member in members:
        member.heartbeat(at)
    assert not matching.calls, "a heartbeat matches nothing"
    steps = 0
    for _ in range(1_000):
        at.wait(10)
        taken = matching.take()
        assert sum(len(names) for _, names in taken) <= NAMES_PER_STEP, "others' requests are served between two steps"
        steps += bool(taken)
        members[steps % 100].heartbeat(at)
    assert steps == 100 * 3  # of 4,000, 4,000 and 2,000 names


def test_an_expression_of_many_instructions_is_matched_with_few_names_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, matching = Coordinator({f"t{number}": 1 for number in range(400)}), Matching(monkeypatch)
    Member("one", ["t1"], regex="(?:a?){1000}").heartbeat(at)
    widths = []
    for _ in range(30):
        at.wait(10)
        widths.append(sum(len(names) for _, names in matching.take()))
    assert (sum(widths), max(widths) < 50) == (400, True)


def test_a_new_coordinator_resolves_expressions_again_with_the_next_heartbeat() -> None:
    at = Coordinator({"a": 1})
    one = Member("one", regex="[ab]")
    settle(at, [one])
    at.log.load(at.now_ms)
    at.log.change_image(image_of({"a": 1, "b": 1}), at.now_ms)
    settle(at, [one])
    assert at.group.regexes == {"[ab]": ("a", "b")}
    assert one.count == 2


def test_an_expression_that_only_kafka_accepted_matches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's syntax is that of RE2/J: a group that it wrote may have an expression that RE2 refuses."""
    at = Coordinator({"t": 1, "u": 1})

    def refuse(regex: str, *_: Any) -> tuple[str, ...]:
        raise KafkaError(ErrorCode.invalid_regular_expression, regex)

    monkeypatch.setattr(regex_resolver, "resolve_regex", refuse)
    one = Member("one", ["t"], regex="u")
    settle(at, [one])
    assert (one.numbers("t"), one.numbers("u"), at.group.regexes) == ([0], [], {"u": ()})
