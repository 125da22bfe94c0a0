"""Requests that a coordinator refuses, offsets, and groups beside those of the other kind (M7)."""

from typing import Any

import pytest

from odradek.assignors import Assignment, GroupSubscription
from odradek.broker.groups.machine.consumer import heartbeat as heartbeat_module
from odradek.broker.groups.machine.consumer.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from tests.broker.groups.machine.consumer.protocol_world import (
    GROUP,
    Coordinator,
    Member,
    image_of,
    settings,
    settle,
    topic_id,
)

FIRST = TopicPartition("t", 0)


def first_request(**changes: Any) -> ConsumerGroupHeartbeatRequest:
    fields = {
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ("t",),
        "owned": {},
    }
    return ConsumerGroupHeartbeatRequest(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"member_id": ""}, ErrorCode.invalid_request, "MemberId can't be empty."),
        ({"instance_id": ""}, ErrorCode.invalid_request, "InstanceId can't be empty."),
        ({"rack_id": " "}, ErrorCode.invalid_request, "RackId can't be empty."),
        ({"member_epoch": -3}, ErrorCode.invalid_request, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, ErrorCode.invalid_request, "InstanceId can't be null."),
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request, "RebalanceTimeoutMs must be"),
        ({"owned": None}, ErrorCode.invalid_request, "TopicPartitions must be empty"),
        ({"owned": {topic_id("t"): frozenset({0})}}, ErrorCode.invalid_request, "TopicPartitions must be empty"),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request, "must be non-null when"),
        ({"server_assignor": "sticky"}, ErrorCode.unsupported_assignor, "Supported assignors: range"),
        (
            {"subscribed_topic_regex": "a("},
            ErrorCode.invalid_regular_expression,
            "is not a valid regular expression: missing",
        ),
        (
            {"subscribed_topic_regex": "(?=a)"},
            ErrorCode.invalid_regular_expression,
            "is not a valid regular expression: invalid",
        ),
        ({"subscribed_topic_regex": "a" * 4097}, ErrorCode.invalid_regular_expression, "4096 and 16 are"),
        ({"subscribed_topic_regex": r"\PL" * 17}, ErrorCode.invalid_regular_expression, "17 Unicode classes"),
        ({"member_epoch": 1}, ErrorCode.group_id_not_found, "Group g not found."),
        ({"member_epoch": -1}, ErrorCode.group_id_not_found, "Group g not found."),
    ],
)
def test_a_request_that_is_wrong_by_itself_gets_kafkas_error(changes: Any, code: ErrorCode, text: str) -> None:
    at = Coordinator({"t": 1})
    refused = at.ask(first_request(**changes))
    assert isinstance(refused, KafkaError)
    assert refused.code is code
    assert text in str(refused)
    assert at.log.committed == []
    assert at.log.consumer_group(GROUP) is None


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_stale_or_future_epoch_is_fenced(epoch: int) -> None:
    at = Coordinator({"t": 2})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    assert one.epoch == 2
    one.owned, one.epoch = {topic_id("t"): frozenset({0, 1})}, epoch
    one.heartbeat(at)
    assert one.errors == [ErrorCode.fenced_member_epoch]
    settle(at, [one, two])
    assert (one.count, two.count) == (1, 1)


def test_the_epoch_before_is_accepted_after_a_lost_reply() -> None:
    at = Coordinator({"t": 2})
    one = Member("one", ["t"])
    one.heartbeat(at)
    at.log.change_image(image_of({"t": 3}), 0)
    at.ask(one.request())
    assert one.heartbeat(at).member_epoch == 2
    assert one.numbers("t") == [0, 1, 2]


def test_a_member_that_lost_its_state_joins_again_with_its_id() -> None:
    at = Coordinator({"t": 2})
    one = Member("one", ["t"])
    one.heartbeat(at)
    again = Member("one", ["t"])
    assert again.heartbeat(at).member_epoch == 1
    assert again.numbers("t") == [0, 1]


def test_an_instance_id_belongs_to_its_member_until_that_leaves() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"], instance_id="i")
    one.heartbeat(at)
    other = Member("other", ["t"], instance_id="i")
    other.heartbeat(at)
    assert other.errors == [ErrorCode.unreleased_instance_id]
    one.leave(at, epoch=-2)
    other.heartbeat(at)
    one.epoch = 1
    one.heartbeat(at)
    assert one.errors == [ErrorCode.fenced_instance_id]
    refused = at.ask(ConsumerGroupHeartbeatRequest(member_id="one", member_epoch=-1, instance_id="i"))
    assert refused.code is ErrorCode.fenced_instance_id


def test_a_group_takes_no_more_members_than_its_limit() -> None:
    at = Coordinator({"t": 1}, consumer_settings=settings("range", max_size=1))
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    two.heartbeat(at)
    assert two.errors == [ErrorCode.group_max_size_reached]
    assert one.heartbeat(at).member_epoch == 1


def test_a_group_has_a_limit_of_names_in_its_different_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each assignment goes over all of them."""
    monkeypatch.setattr(heartbeat_module, "MOST_NAMES", 5)
    at = Coordinator({"t": 1})
    one, same, other, third = (
        Member("1", ["a", "b"]),
        Member("2", ["b", "a"]),
        Member("3", ["a", "c", "d"]),
        Member("4", ["x"]),
    )
    for each in (one, same, other, third):
        each.heartbeat(at)
    assert [each.errors for each in (one, same, other)] == [[], [], []]
    assert third.errors == [ErrorCode.group_max_size_reached]
    one.heartbeat(at)
    assert one.errors == []


class Failing:
    def assign(self, group: GroupSubscription) -> Assignment:
        raise RuntimeError("no idea")


class Doubling:
    def assign(self, group: GroupSubscription) -> Assignment:
        return dict.fromkeys(group.members, (FIRST,))


@pytest.mark.parametrize(
    ("assignor", "text"),
    [
        (Failing(), "assignor mine failed for epoch 2 of group g: no idea"),
        (Doubling(), "assignor mine failed for epoch 2 of group g: it gave a partition to two members"),
    ],
)
def test_an_assignor_that_fails_is_reported_to_the_member_and_changes_nothing(assignor: Any, text: str) -> None:
    at = Coordinator({"t": 1})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    one.heartbeat(at)
    good = at.log.consumer_settings
    at.log.consumer_settings = type(good)(assignors={"mine": assignor})
    refused = at.ask(two.request())
    assert (refused.code, str(refused)) == (ErrorCode.unknown_server_error, text)
    at.log.consumer_settings = good
    settle(at, [one, two])
    assert sorted((one.count, two.count)) == [0, 1]


# ---- offsets --------------------------------------------------------------------------------------------------------


def commit(at: Coordinator, member_id: str, epoch: int) -> Any:
    values = {FIRST: OffsetCommitValue(offset=5, commit_timestamp=at.now_ms)}
    return at.ask(CommitRequest(member_id=member_id, generation=epoch, values=values))


def test_commits_are_fenced_by_the_members_epoch() -> None:
    at = Coordinator({"t": 1})
    one, two = Member("one", ["t"]), Member("two", ["t"])
    settle(at, [one, two])
    assert commit(at, "one", 2) is ErrorCode.none
    assert commit(at, "one", 1) is ErrorCode.stale_member_epoch
    for told in (ErrorCode.illegal_generation, ErrorCode.stale_member_epoch):  # TxnOffsetCommit 5 and 6
        request = CommitRequest(member_id="one", generation=1, values={}, stale_epoch_error=told)
        assert at.ask(request) is told
    assert commit(at, "nobody", 2) is ErrorCode.unknown_member_id
    assert commit(at, "", -1) is ErrorCode.unknown_member_id, "the group has members"
    one.leave(at)
    two.leave(at)
    assert commit(at, "", -1) is ErrorCode.none


def test_offsets_are_fetched_by_members_of_the_present_epoch_and_by_clients_that_are_none() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    commit(at, "one", 1)
    assert at.ask(FetchOffsetsRequest()).values[FIRST].offset == 5
    assert at.ask(FetchOffsetsRequest(member_id="one", member_epoch=1)).values[FIRST].offset == 5
    for member_id, epoch, error in (
        ("one", 2, ErrorCode.stale_member_epoch),
        ("two", 1, ErrorCode.unknown_member_id),
    ):
        fetched = at.ask(FetchOffsetsRequest(member_id=member_id, member_epoch=epoch))
        assert (fetched.error, dict(fetched.values)) == (error, {})


def test_offsets_of_subscribed_topics_are_kept_and_others_deleted() -> None:
    at = Coordinator({"t": 1})
    settle(at, [Member("one", ["t"])])
    other = TopicPartition("other", 0)
    errors = at.ask(DeleteOffsetsRequest(partitions=(FIRST, other)))
    assert errors == {FIRST: ErrorCode.group_subscribed_to_topic, other: ErrorCode.none}


def test_a_group_is_deleted_with_its_offsets_when_it_has_no_members() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", regex="t")
    settle(at, [one])
    commit(at, "one", 1)
    assert at.ask(DeleteGroupRequest()) is ErrorCode.non_empty_group
    one.leave(at)
    assert at.ask(DeleteGroupRequest()) is ErrorCode.none
    assert str(at.ask(ConsumerGroupDescribeRequest())) == f"Group {GROUP} not found."
    assert at.ask(FetchOffsetsRequest()).values == {}
    at.log.load(at.now_ms)
    assert at.log.machine.groups.by_id == {}


def test_offsets_of_a_group_without_members_expire_and_the_group_goes_with_the_last() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    commit(at, "one", 1)
    one.leave(at)
    for _ in range(8):
        at.wait(24 * 3_600_000)
    assert at.log.consumer_group(GROUP) is None
    assert at.ask(FetchOffsetsRequest()).values == {}


# ---- groups of the other kind ---------------------------------------------------------------------------------------


def classic_join(name: str = "") -> JoinRequest:
    return JoinRequest(
        member_id=name, new_member_id="classic", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        protocol_type="consumer", protocols=(("range", b""),), requires_member_id=False, can_skip_assignment=True,
    )  # fmt: skip


def test_a_classic_member_that_meets_a_group_of_the_consumer_protocol_is_refused() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    assert at.ask(classic_join()).error is ErrorCode.inconsistent_group_protocol
    assert str(at.ask(DescribeRequest())) == f"Group {GROUP} is not a classic group."
    one.leave(at)
    assert at.ask(DeleteGroupRequest()) is ErrorCode.none


def test_an_empty_group_changes_its_kind_with_its_first_member_and_keeps_its_offsets() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    commit(at, "one", 1)
    one.leave(at)

    joining = object()
    at.send(classic_join(), joining)
    at.wait(3_000)
    generation = at.reply(joining).generation
    at.ask(SyncRequest(member_id="classic", generation=generation, assignments=(("classic", b"x"),)))
    assert at.log.consumer_group(GROUP) is None
    assert str(at.ask(ConsumerGroupDescribeRequest())) == f"Group {GROUP} is not a consumer group."
    one.heartbeat(at)
    assert one.errors == [ErrorCode.group_id_not_found]

    at.ask(LeaveRequest(members=(LeavingMember(member_id="classic"),)))
    assert one.heartbeat(at).member_epoch == 1
    assert at.log.group(GROUP) is None
    assert at.ask(FetchOffsetsRequest()).values[FIRST].offset == 5
    at.log.load(at.now_ms)
    assert at.log.consumer_group(GROUP) is not None


def test_offsets_without_a_group_belong_to_the_group_of_the_consumer_protocol_that_begins_later() -> None:
    at = Coordinator({"t": 1})
    assert commit(at, "", -1) is ErrorCode.none
    assert at.log.group(GROUP) is not None
    settle(at, [Member("one", ["t"])])
    assert at.log.group(GROUP) is None
    assert at.ask(FetchOffsetsRequest()).values[FIRST].offset == 5


def test_a_refused_classic_join_leaves_an_empty_group_as_it_is() -> None:
    at = Coordinator({"t": 1})
    one = Member("one", ["t"])
    settle(at, [one])
    one.leave(at)
    epoch = at.group.epoch
    assert at.ask(classic_join("nobody")).error is ErrorCode.unknown_member_id
    assert at.group.epoch == epoch


def test_a_commit_in_a_version_without_member_epochs_is_refused_to_members() -> None:
    at = Coordinator({"t": 1})
    settle(at, [Member("one", ["t"])])
    values = {FIRST: OffsetCommitValue(offset=5, commit_timestamp=0)}
    request = CommitRequest(member_id="one", generation=1, values=values, has_member_epoch=False)
    assert at.ask(request) is ErrorCode.unsupported_version


def test_topics_that_a_client_may_not_describe_do_not_match_its_expression() -> None:
    at = Coordinator({"open": 1, "secret": 1})
    one = Member("one", regex=".*", denied_topics=lambda names: {"secret"} & set(names))
    settle(at, [one])
    assert (one.numbers("open"), one.numbers("secret")) == ([0], [])


def test_memory_is_counted_by_what_members_subscribe_to_and_given_back() -> None:
    at = Coordinator({"t": 1})
    names = [f"a long name of a topic {number}" for number in range(1000)]
    one, two = Member("one", names), Member("two", ["t"])
    settle(at, [one, two])
    assert 50_000 < at.log.machine.size_bytes < 500_000
    one.topics = ("t",)
    one.heartbeat(at)
    assert at.log.machine.size_bytes < 10_000
    one.leave(at)
    two.leave(at)
    assert at.log.machine.size_bytes == 0
