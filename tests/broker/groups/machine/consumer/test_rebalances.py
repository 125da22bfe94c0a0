"""How members of the consumer protocol get, give up and wait for partitions (SPEC 6, M7; KIP-848)."""

from collections.abc import Sequence

import pytest

from odradek.broker.groups.machine.consumer import group_update
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroupState
from odradek.broker.groups.machine.consumer.member import MemberState
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupDescribeRequest
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.model import ErrorCode, TopicPartition
from tests.broker.groups.machine.consumer.protocol_world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    Member,
    image_of,
    settings,
    settle,
    topic_id,
)


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    at = Coordinator({"t": 3})
    one = Member("one", ["t"])
    reply = one.heartbeat(at)
    assert (reply.member_epoch, one.numbers("t")) == (1, [0, 1, 2])
    assert at.group.state is ConsumerGroupState.STABLE


def test_only_partitions_that_move_stop_and_the_newcomer_waits_for_them() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    assert two.heartbeat(at).member_epoch == 2
    assert (one.numbers("t"), two.numbers("t")) == ([0, 1, 2, 3], [])
    assert at.group.members["two"].state is MemberState.UNRELEASED_PARTITIONS
    one.heartbeat(at)
    assert at.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    assert (one.epoch, one.lost) == (1, True), "it keeps its epoch until it has given up what moves"
    two.heartbeat(at)
    assert two.numbers("t") == [], "what is not revoked yet is nobody else's"
    one.revoke()
    assert one.heartbeat(at).member_epoch == 2
    two.heartbeat(at)
    assert (one.numbers("t"), two.numbers("t")) == ([0, 1], [2, 3])
    assert at.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_that_does_not_say_what_is_owned_revokes_nothing() -> None:
    at = Coordinator({"t": 2})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    one.heartbeat(at)
    silent = one.request().__class__(member_id="one", member_epoch=1)
    assert at.ask(silent).assignment is None
    assert at.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS


def test_partitions_of_a_member_that_leaves_go_to_the_others_at_their_next_heartbeats() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    epoch = at.group.epoch
    assert two.leave(at).member_epoch == -1
    assert at.group.epoch == epoch + 1
    assert at.group.state is ConsumerGroupState.ASSIGNING
    one.heartbeat(at)
    assert one.numbers("t") == [0, 1, 2, 3]


def test_a_silent_member_is_removed_after_its_session() -> None:
    at = Coordinator({"t": 2})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    at.wait(SESSION_MS - 1)
    one.heartbeat(at)
    at.wait(1)
    assert list(at.group.members) == ["one"]
    one.heartbeat(at)
    assert one.numbers("t") == [0, 1]
    two.heartbeat(at)
    assert two.errors == [ErrorCode.unknown_member_id]


def test_a_member_that_never_revokes_is_removed_after_its_rebalance_timeout() -> None:
    at = Coordinator({"t": 2})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    for _ in range(REBALANCE_MS // 1_000):
        one.heartbeat(at)
        two.heartbeat(at)
        assert "one" in at.group.members
        at.wait(1_000)
    one.heartbeat(at)
    assert one.errors == [ErrorCode.unknown_member_id]
    two.heartbeat(at)
    assert two.count >= 1


def test_a_new_partition_is_assigned_at_the_next_heartbeat() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t", "later"])
    one.heartbeat(at)
    at.log.change_image(image_of({"t": 2, "later": 1}), at.now_ms)
    one.heartbeat(at)
    assert (one.numbers("t"), one.numbers("later")) == ([0, 1], [0])


def test_a_change_of_a_topic_without_subscribers_changes_no_epoch() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    one.heartbeat(at)
    at.log.change_image(image_of({"t": 1, "other": 5}), at.now_ms)
    one.heartbeat(at)
    assert at.group.epoch == 1


def test_a_topic_that_was_made_again_is_another_topic() -> None:
    at = Coordinator({"t": 2})
    one = Member("one", ["t"])
    one.heartbeat(at)
    at.log.change_image(image_of({"t": 2}, version=1), at.now_ms)
    settle(at, [one])
    assert one.owned == {topic_id("t", 1): frozenset({0, 1})}


def test_an_unsubscribed_topic_is_revoked_at_once() -> None:
    at = Coordinator({"a": 2, "b": 2})
    one, two = Member("one", ["a", "b"]), Member("two", ["b"])
    settle(at, [one, two])
    one.topics = ("a",)
    settle(at, [one, two])
    assert (one.numbers("a"), one.numbers("b"), two.numbers("b")) == ([0, 1], [], [0, 1])


def test_a_static_member_that_returns_gets_its_partitions_and_no_others_move() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"], instance_id="i"), Member("two", ["t"])
    settle(at, [one, two])
    had, epoch = one.numbers("t"), at.group.epoch
    assert one.leave(at, epoch=-2).member_epoch == -2
    two.heartbeat(at)
    assert two.numbers("t") == sorted({0, 1, 2, 3} - set(had))
    again = Member("another id", ["t"], instance_id="i")
    again.heartbeat(at)
    assert again.numbers("t") == had
    assert (at.group.epoch, sorted(at.group.members)) == (epoch, ["another id", "two"])


def test_a_static_member_that_does_not_return_is_removed_after_its_session() -> None:
    at = Coordinator({"t": 2})
    one = Member("one", ["t"], instance_id="i")
    settle(at, [one])
    one.leave(at, epoch=-2)
    at.wait(SESSION_MS)
    assert at.group.members == {}
    assert at.group.state is ConsumerGroupState.EMPTY


def test_members_choose_the_assignor_of_the_group_by_majority() -> None:
    at = Coordinator({"t": 2}, consumer_settings=settings("range", "roundrobin"))
    members = [Member(f"m{number}", ["t"], server_assignor="roundrobin") for number in range(2)]
    settle(at, [*members, Member("odd", ["t"], server_assignor="range")])
    description = at.ask(ConsumerGroupDescribeRequest())
    assert description.assignor == "roundrobin"


def test_a_group_without_members_is_empty_and_its_epoch_goes_on() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    one.leave(at)
    assert at.group.state is ConsumerGroupState.EMPTY
    assert one.heartbeat(at).member_epoch == 3


@pytest.mark.parametrize("rack", ["a", "b"])
def test_members_get_partitions_with_a_replica_in_their_rack(rack: str) -> None:
    at = Coordinator({})
    at.log.change_image(image_of({"t": 4}, racks={0: "a", 1: "b"}), 0)
    members = [Member(name, ["t"], rack_id=name) for name in ("a", "b")]
    settle(at, members)
    numbers = {"a": [0, 2], "b": [1, 3]}[rack]
    assert next(member for member in members if member.name == rack).numbers("t") == numbers


def test_a_loaded_coordinator_goes_on_where_the_last_one_was() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    one.heartbeat(at)
    at.log.load(at.now_ms)
    assert at.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    settle(at, [one, two])
    assert (one.errors, two.errors) == ([], [])
    assert (one.numbers("t"), two.numbers("t")) == ([0, 1], [2, 3])


def test_a_loaded_coordinator_starts_sessions_and_revocations_anew() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    one.heartbeat(at)
    at.log.load(at.now_ms)
    at.wait(REBALANCE_MS)
    assert list(at.group.members) == ["two"]
    at.wait(SESSION_MS - REBALANCE_MS)
    assert list(at.group.members) == []
    assert at.log.consumer_group(GROUP) is not None


def test_silent_members_expire_although_records_of_others_cannot_be_appended() -> None:
    at = Coordinator({"t": 2})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    for _ in range(3):
        at.log.refuses = True
        one.topics = ("t", "more") if one.topics == ("t",) else ("t",)
        assert one.heartbeat(at) is ErrorCode.coordinator_not_available
        at.log.refuses = False
        one.heartbeat(at)
        at.wait(SESSION_MS // 2)
    assert list(at.group.members) == ["one"]


def test_a_topic_that_grew_while_an_assignor_failed_is_assigned_later() -> None:
    at = Coordinator({"t": 2})
    one = Member("one", ["t"])
    settle(at, [one])
    good = at.log.consumer_settings
    at.log.consumer_settings = type(good)(assignors={"mine": Broken()})
    at.log.change_image(image_of({"t": 4}), 0)
    one.heartbeat(at)
    assert one.errors == [ErrorCode.unknown_server_error]
    at.log.consumer_settings = good
    settle(at, [one])
    assert one.numbers("t") == [0, 1, 2, 3]


class Broken:
    def assign(self, group: object) -> dict[str, Sequence[TopicPartition]]:
        raise RuntimeError("broken")


@pytest.fixture
def as_in_a_large_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a group of any size compute its targets once a second."""
    monkeypatch.setattr(group_update, "_ENTRIES_PER_MS", 0.001)


@pytest.mark.usefixtures("as_in_a_large_group")
def test_members_that_join_together_share_one_computation() -> None:
    at = Coordinator({"t": 4})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    newcomers = [Member(name, ["t"]) for name in ("three", "four")]
    waiting = [(member, object()) for member in newcomers]
    for member, to in waiting:
        at.send(member.request(), to)
    at.log.commit()
    assert [id(to) in at.replies for _, to in waiting] == [False] * 2, "no target is computed yet"
    assert (at.group.epoch, at.group.assignment_epoch) == (4, 2)
    assert one.heartbeat(at).member_epoch == 2, "the others go on towards the targets that there are"
    at.wait(1_000)
    assert (at.group.epoch, at.group.assignment_epoch) == (4, 4)
    for member, to in waiting:
        member.follow(at.reply(to))
    assert [member.epoch for member in newcomers] == [4] * 2
    settle(at, [one, two, *newcomers])
    assert [member.count for member in (one, two, *newcomers)] == [1, 1, 1, 1]


@pytest.mark.usefixtures("as_in_a_large_group")
def test_a_join_is_answered_when_a_heartbeat_computes_its_target_and_another_begins_the_next_wait() -> None:
    at = Coordinator({"t": 4})
    settle(at, [Member("one", ["t"]), Member("two", ["t"])])
    waiting = object()
    at.send(Member("three", ["t"]).request(), waiting)
    at.now_ms += 1_000  # the timer is late: heartbeats come first
    assert Member("four", ["t"]).heartbeat(at).member_epoch == 4, "it computes the targets"
    assert Member("five", ["t"]).heartbeat(at) is None, "it waits for the next computation"
    at.wait(0)
    assert at.reply(waiting).member_epoch == 4


@pytest.mark.usefixtures("as_in_a_large_group")
def test_a_member_that_leaves_before_its_first_target_is_unknown() -> None:
    at = Coordinator({"t": 4})
    settle(at, [Member("one", ["t"]), Member("other", ["t"])])
    two, to = Member("two", ["t"]), object()
    at.send(two.request(), to)
    two.leave(at)
    at.wait(1_000)
    assert at.reply(to).code is ErrorCode.unknown_member_id
    assert list(at.group.members) == ["one", "other"]


@pytest.mark.usefixtures("as_in_a_large_group")
def test_members_that_wait_for_their_target_get_the_error_of_an_assignor_that_fails() -> None:
    at = Coordinator({"t": 4})
    settle(at, [Member("one", ["t"]), Member("other", ["t"])])
    two, to = Member("two", ["t"]), object()
    at.send(two.request(), to)
    at.log.consumer_settings = ConsumerGroupSettings(assignors={"range": Broken()})
    at.wait(1_000)
    assert at.reply(to).code is ErrorCode.unknown_server_error
    at.log.consumer_settings = settings()
    assert two.heartbeat(at).member_epoch == 3


@pytest.mark.parametrize("count", range(1, 12))
def test_targets_that_were_appended_in_part_are_computed_again(count: int) -> None:
    """A batch takes no more than `max.message.bytes`, so a large step is several, and any of them may fail."""
    at = Coordinator({"t": 6})
    one, two, three = (Member(name, ["t"]) for name in ("one", "two", "three"))
    settle(at, [one, two])
    at.commits_at_once = False
    at.send(three.request(), object())
    assert len(at.log.appended) >= 7
    at.log.commit(min(count, len(at.log.appended)))
    at.log.lose(at.now_ms, ErrorCode.not_coordinator)
    at.commits_at_once = True
    settle(at, [one, two, three])
    assert (one.count, two.count, three.count) == (2, 2, 2)


def test_a_member_that_takes_over_the_place_of_a_static_one_gives_its_own_to_others() -> None:
    at = Coordinator({"t": 4})
    static, dynamic = Member("static", ["t"], instance_id="i"), Member("dynamic", ["t"])
    settle(at, [static, dynamic])
    static.leave(at, epoch=-2)
    both = Member("dynamic", ["t"], instance_id="i")
    settle(at, [both])
    assert both.numbers("t") == [0, 1, 2, 3]


class CountedName(str):
    """A name that counts how often it is hashed."""

    __slots__ = ()
    hashes = 0

    def __hash__(self) -> int:
        CountedName.hashes += 1
        return str.__hash__(self)


def test_a_member_that_joins_costs_little_for_unknown_topics_of_the_others() -> None:
    at = Coordinator({"t": 2})
    for number in range(20):
        Member(f"wide {number}", [CountedName(f"{number} {each}") for each in range(100)]).heartbeat(at)
        at.wait(100)
    CountedName.hashes = 0
    small = Member("small", ["t", "u"])
    small.heartbeat(at)
    assert small.numbers("t") == [0, 1]
    assert CountedName.hashes <= 4 * 20 * 100
