"""Classic members in groups of the consumer protocol, and the conversions of live groups (M7, KIP-848)."""

from collections.abc import Iterable
from typing import Any

import pytest

from odradek.broker.coordinators.machine import CoordinatorResult
from odradek.broker.groups.machine.classic.classic_group import GroupSettings, State
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupDescribeRequest
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DescribeRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    RebalanceStarted,
    SyncRequest,
)
from odradek.broker.groups.machine.records import GroupRecord
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from tests.broker.groups.machine.both_protocols.classic_client import ClassicClient
from tests.broker.groups.machine.consumer.protocol_world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    Member,
    durable,
    settings,
)
from tests.broker.groups.machine.consumer.test_model_invariants import replayed


def coordinator(topics: dict[str, int] | None = None, **more: Any) -> Coordinator:
    at = Coordinator(topics or {"t": 4}, consumer_settings=settings("uniform", **more))
    at.log.settings = GroupSettings(initial_rebalance_delay_ms=0)
    return at


def steps(at: Coordinator, clients: Iterable[Any], *, rounds: int = 12) -> None:
    """Let clients go on until the group is at rest."""
    members = list(clients)
    for _ in range(rounds):
        for member in members:
            member.heartbeat(at)
            member.revoke()
        at.wait(500)
        for member in members:
            if isinstance(member, ClassicClient):
                member.collect(at)


def classic_state(at: Coordinator) -> State | None:
    group = at.log.group(GROUP)
    return None if group is None else group.state


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_classic_group_becomes_a_consumer_group_and_a_classic_one_again(assignor: str) -> None:
    at = coordinator()
    old = [ClassicClient(name, ["t"], assignor=assignor) for name in ("a", "b")]
    steps(at, old)
    assert (classic_state(at), [each.count for each in old]) == (State.STABLE, [2, 2])
    generation = old[0].generation

    new = [Member(name, ["t"]) for name in ("one", "two")]
    steps(at, [*old, *new])
    assert classic_state(at) is None
    assert [each.count for each in (*old, *new)] == [1, 1, 1, 1]
    assert all(each.generation > generation for each in old)
    described = at.ask(ConsumerGroupDescribeRequest())
    assert sorted(member.is_classic for member, _ in described.members) == [False, False, True, True]
    assert at.ask(DescribeRequest()).code is ErrorCode.group_id_not_found
    assert durable(replayed(at)) == durable(at.group)

    for each in new:
        each.leave(at)
    steps(at, old)
    assert (classic_state(at), [each.count for each in old]) == (State.STABLE, [2, 2])
    assert at.log.consumer_group(GROUP) is None
    assert [error for each in (*old, *new) for error in each.errors] == []


def test_the_epoch_before_a_conversion_is_valid_until_the_next_generation() -> None:
    """A static member that misses a rebalance stays, and must not go on with what it had before."""
    at = coordinator()
    static, other, new = ClassicClient("s", ["t"], instance_id="s"), ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [static, other, new])
    new.leave(at)
    beat = HeartbeatRequest(member_id=static.member_id, instance_id="s", generation=static.generation)
    assert at.ask(beat) is ErrorCode.rebalance_in_progress
    for _ in range(REBALANCE_MS // 500 + 2):
        other.step(at)
        at.wait(500)
        other.collect(at)
    assert classic_state(at) is State.STABLE
    assert at.ask(beat) is ErrorCode.illegal_generation


def test_partitions_that_do_not_move_are_never_given_up_during_conversions() -> None:
    at = coordinator({"t": 6})
    old = [ClassicClient(name, ["t"]) for name in ("a", "b")]
    steps(at, old)
    kept = [set(each.owned[topic]) for each in old for topic in each.owned]
    new = Member("one", ["t"])
    for _ in range(12):
        for each in (*old, new):
            each.heartbeat(at)
            kept = [before & set().union(*each.owned.values()) for before, each in zip(kept, old, strict=True)]
            each.revoke()
        at.wait(500)
    assert [len(each) for each in kept] == [2, 2], "of three partitions each keeps two, and gives one up"
    assert new.count == 2


def test_each_conversion_is_one_atomic_batch() -> None:
    at = coordinator()
    taken: list[CoordinatorResult[GroupRecord]] = []
    at.log.on_result = taken.append
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [old])
    new.heartbeat(at)
    upgrade = taken[-1]
    assert upgrade.is_atomic
    assert len(upgrade.records) > 5
    steps(at, [old, new])
    new.leave(at)
    (downgrade,) = [step for step in taken if any(isinstance(each, RebalanceStarted) for each in step.events)][-1:]
    assert downgrade.is_atomic
    assert len(downgrade.records) > 5


def test_a_conversion_whose_records_cannot_be_appended_leaves_the_group_as_it_is() -> None:
    at = coordinator()
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [old])
    at.log.refuses = True
    new.heartbeat(at)
    at.log.refuses = False
    assert classic_state(at) is State.STABLE
    steps(at, [old, new])
    assert [old.count, new.count] == [2, 2]
    at.log.refuses = True
    new.leave(at)
    at.log.refuses = False
    assert list(at.group.members) == [old.member_id, "one"]
    at.wait(SESSION_MS - 1)
    steps(at, [old])
    assert (classic_state(at), old.count) == (State.STABLE, 4)


def test_waiting_members_of_a_classic_group_join_the_group_that_it_becomes() -> None:
    at = coordinator()
    at.log.settings = GroupSettings(initial_rebalance_delay_ms=3_000)
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    old.step(at)
    old.step(at)
    assert classic_state(at) is State.PREPARING_REBALANCE
    new.heartbeat(at)
    assert classic_state(at) is None
    steps(at, [old, new])
    assert [old.count, new.count] == [2, 2]


@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_a_member_that_has_only_got_its_id_joins_the_group_that_becomes_a_consumer_group(policy: str) -> None:
    """Until it joins with the id, the classic group has no member and no protocol type (KIP-394)."""
    at = coordinator(migration_policy=policy)
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    old.step(at)
    assert (group := at.log.group(GROUP)) is not None
    assert list(group.pending_members) == [old.member_id]
    new.heartbeat(at)
    assert (new.errors, classic_state(at)) == ([], None)
    steps(at, [old, new])
    assert [old.count, new.count] == [2, 2]


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True), ("bidirectional", True, True)],
)
def test_the_policy_says_which_groups_are_converted(policy: str, upgrades: bool, downgrades: bool) -> None:
    at = coordinator(migration_policy=policy)
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [old])
    new.heartbeat(at)
    assert new.errors == ([] if upgrades else [ErrorCode.group_id_not_found])

    at = coordinator(migration_policy=policy)
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [new])
    steps(at, [old, new])
    assert [old.count, new.count] == [2, 2], "a classic member may join a consumer group with any policy"
    new.leave(at)
    steps(at, [old])
    assert (classic_state(at) is State.STABLE) == downgrades
    assert old.count == 4


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"protocol_type": "connect"}, "protocol type connect"),
        ({"protocols": (("range", b"?"),)}, "cannot be read"),
    ],
)
def test_a_group_without_the_embedded_protocol_is_not_converted(changes: dict[str, Any], text: str) -> None:
    at = coordinator()
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocols": (("range", b""),)}
    joining = object()
    at.send(
        JoinRequest(
            member_id="", new_member_id="x", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            requires_member_id=False, can_skip_assignment=True, **(fields | changes),
        ),
        joining,
    )  # fmt: skip
    at.log.commit()
    assert at.reply(joining).generation == 1
    refused = at.ask(Member("one", ["t"]).request())
    assert (refused.code, text in str(refused)) == (ErrorCode.group_id_not_found, True)
    assert classic_state(at) is State.COMPLETING_REBALANCE


def test_groups_that_are_too_large_for_the_other_protocol_are_not_converted() -> None:
    at = coordinator(max_size=2)
    old = [ClassicClient(name, ["t"]) for name in ("a", "b")]
    steps(at, old)
    refused = at.ask(Member("one", ["t"]).request())
    assert refused.code is ErrorCode.group_id_not_found

    at = coordinator()
    at.log.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=1)
    new = Member("one", ["t"])
    steps(at, [new])
    steps(at, [*old, new])
    new.leave(at)
    steps(at, old)
    assert (classic_state(at), len(at.group.members)) == (None, 2)


# ---- single requests of classic members -----------------------------------------------------------------------------


def mixed() -> tuple[Coordinator, ClassicClient, Member]:
    at = coordinator()
    old, new = ClassicClient("a", ["t"]), Member("one", ["t"])
    steps(at, [new])
    steps(at, [old, new])
    return at, old, new


def join_request(at: Coordinator, client: ClassicClient, **changes: Any) -> JoinRequest:
    request = client._join_request(at)
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return JoinRequest(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("other", encode_subscription(Subscription(topics=("t",)))),)},
        {"protocols": (("cooperative-sticky", b"?"),)},
    ],
)
def test_protocols_that_do_not_fit_are_inconsistent(changes: dict[str, Any]) -> None:
    at, old, _ = mixed()
    assert at.ask(join_request(at, ClassicClient("b", ["t"]), **changes)).error is ErrorCode.inconsistent_group_protocol
    assert len(at.group.members) == 2
    assert old.errors == []


def test_an_unknown_member_gets_its_id_first() -> None:
    at, _, _ = mixed()
    reply = at.ask(join_request(at, ClassicClient("b", ["t"])))
    assert (reply.error, reply.member_id) == (ErrorCode.member_id_required, "b-1")
    assert len(at.group.members) == 2


def test_a_member_that_was_removed_and_still_has_partitions_gives_them_up_first() -> None:
    at, old, new = mixed()
    assert old.count == 2
    at.ask(LeaveRequest(members=(LeavingMember(member_id=old.member_id),)))
    steps(at, [new])
    assert new.count == 4
    assert at.ask(join_request(at, old)).error is ErrorCode.unknown_member_id
    steps(at, [old, new])
    assert (old.count, new.count) == (2, 2)


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        (None, 7, ErrorCode.illegal_generation),
        ("nobody", None, ErrorCode.unknown_member_id),
        ("one", None, ErrorCode.unknown_member_id),
    ],
)
def test_requests_of_others_and_of_other_generations_are_refused(
    member_id: str | None, generation: int | None, error: ErrorCode
) -> None:
    at, old, _ = mixed()
    who, when = member_id or old.member_id, old.generation if generation is None else generation
    assert at.ask(HeartbeatRequest(member_id=who, instance_id=None, generation=when)) is error
    assert at.ask(SyncRequest(member_id=who, generation=when)).error is error


def test_another_protocol_than_the_member_joined_with_is_inconsistent() -> None:
    at, old, _ = mixed()
    request = SyncRequest(member_id=old.member_id, generation=old.generation, protocol_name="range")
    assert at.ask(request).error is ErrorCode.inconsistent_group_protocol


def test_a_heartbeat_says_when_to_join_again() -> None:
    at, old, new = mixed()
    request = HeartbeatRequest(member_id=old.member_id, instance_id=None, generation=old.generation)
    assert at.ask(request) is ErrorCode.none
    Member("two", ["t"]).heartbeat(at)
    assert at.ask(request) is ErrorCode.rebalance_in_progress
    assert at.ask(SyncRequest(member_id=old.member_id, generation=old.generation)).error is (
        ErrorCode.rebalance_in_progress
    )
    del new


@pytest.mark.parametrize("step", ["JoinGroup", "SyncGroup"])
def test_a_member_that_does_not_join_or_sync_in_time_is_removed(step: str) -> None:
    at, old, new = mixed()
    reasons: list[str] = []
    at.log.on_result = lambda each: reasons.extend(getattr(event, "reason", "") for event in each.events)
    two = Member("two", ["t"])
    two.heartbeat(at)
    old.step(at)  # REBALANCE_IN_PROGRESS
    if step == "SyncGroup":
        old.step(at)
        assert old.is_joined
    for _ in range(4):
        at.wait(REBALANCE_MS // 4 + 1)
        for each in (new, two):
            each.heartbeat(at)
            each.revoke()
        at.ask(HeartbeatRequest(member_id=old.member_id, instance_id=None, generation=old.generation))
    assert old.member_id not in at.group.members
    assert f"it sent no {step} within {REBALANCE_MS} ms" in reasons


def test_a_silent_classic_member_is_removed_after_its_own_session() -> None:
    at, old, new = mixed()
    for _ in range(5):
        at.wait(SESSION_MS // 4)
        new.heartbeat(at)
    assert list(at.group.members) == ["one"]
    old.step(at)
    assert old.errors == [ErrorCode.unknown_member_id]


def test_classic_members_leave_by_request() -> None:
    at, old, new = mixed()
    members = (
        LeavingMember(member_id=old.member_id),
        LeavingMember(member_id=old.member_id),
        LeavingMember(member_id="", instance_id="nobody"),
    )
    answers = [error for _, error in at.ask(LeaveRequest(members=members))]
    assert answers == [ErrorCode.none, *[ErrorCode.unknown_member_id] * 2]
    steps(at, [new])
    assert (list(at.group.members), new.count) == (["one"], 4)


def test_an_administrator_removes_members_of_the_consumer_protocol() -> None:
    at, old, new = mixed()
    static = Member("two", ["t"], instance_id="i")
    steps(at, [old, new, static])
    removed = (LeavingMember(member_id="one"), LeavingMember(member_id="", instance_id="i"))
    assert [error for _, error in at.ask(LeaveRequest(members=removed))] == [ErrorCode.none] * 2
    assert classic_state(at) is State.PREPARING_REBALANCE  # `old` alone is left: the group is classic again
    assert new.heartbeat(at).code is ErrorCode.group_id_not_found


def test_an_administrator_removes_all_members() -> None:
    at, old, new = mixed()
    members = tuple(LeavingMember(member_id=each) for each in at.group.members)
    assert [error for _, error in at.ask(LeaveRequest(members=members))] == [ErrorCode.none] * 2
    assert not at.group.members
    steps(at, [old, new])
    assert old.count + new.count == 4


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    at = coordinator()
    static, other = ClassicClient("a", ["t"], instance_id="i"), ClassicClient("b", ["t"])
    steps(at, [static, other])
    had = dict(static.owned)
    new = Member("one", ["t"], instance_id="i")
    steps(at, [new, other])
    assert new.owned == had
    static.step(at)
    assert static.errors == [ErrorCode.fenced_instance_id]

    new.leave(at, epoch=-2)
    back = ClassicClient("c", ["t"], instance_id="i")
    steps(at, [back, other])
    assert (classic_state(at), back.count, other.count) == (State.STABLE, 2, 2)


def test_a_static_classic_member_restarts_in_a_consumer_group() -> None:
    at, old, new = mixed()
    first = ClassicClient("s", ["t"], instance_id="i")
    steps(at, [first, old, new])
    had = dict(first.owned)
    second = ClassicClient("s2", ["t"], instance_id="i")
    steps(at, [second, old, new])
    assert second.owned == had
    first.step(at)
    assert first.errors == [ErrorCode.fenced_instance_id]


def test_commits_of_classic_members_are_fenced_by_their_generation() -> None:
    at, old, new = mixed()
    values = {TopicPartition("t", 0): OffsetCommitValue(offset=5, commit_timestamp=0)}

    def commit(member_id: str, generation: int, *, has_epoch: bool) -> object:
        request = CommitRequest(member_id=member_id, generation=generation, values=values, has_member_epoch=has_epoch)
        return at.ask(request)

    assert commit(old.member_id, old.generation, has_epoch=False) is ErrorCode.none
    assert commit(old.member_id, old.generation - 1, has_epoch=False) is ErrorCode.illegal_generation
    assert commit("one", new.epoch - 1, has_epoch=True) is ErrorCode.stale_member_epoch
    assert commit("one", new.epoch, has_epoch=False) is ErrorCode.unsupported_version


def test_a_classic_join_waits_for_targets_that_are_computed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    at, old, new = mixed()
    monkeypatch.setattr("odradek.broker.groups.machine.consumer.group_update._ENTRIES_PER_MS", 0.001)
    at.group.next_assignment_ms = at.now_ms + 1_000
    late = ClassicClient("late", ["t"])
    late.step(at)
    late.step(at)
    assert late.to is not None, "it waits"
    at.wait(1_000)
    late.collect(at)
    assert late.is_joined
    steps(at, [old, new, late])
    assert sorted(each.count for each in (old, new, late)) == [1, 1, 2]


def test_a_loaded_coordinator_goes_on_with_classic_members() -> None:
    at, old, new = mixed()
    before = durable(at.group)
    at.log.lose(at.now_ms, ErrorCode.not_coordinator)
    assert durable(at.group) == before
    two = ClassicClient("b", ["t"])
    steps(at, [old, new, two])
    assert sorted(each.count for each in (old, new, two)) == [1, 1, 2]
    assert old.errors == []


def test_a_request_for_a_classic_group_that_says_it_is_a_member_converts_nothing() -> None:
    at = coordinator()
    steps(at, [ClassicClient("a", ["t"])])
    stranger = Member("one", ["t"])
    stranger.epoch = 3
    assert isinstance(stranger.heartbeat(at), KafkaError)
    assert stranger.errors == [ErrorCode.group_id_not_found]
    assert classic_state(at) is State.STABLE
