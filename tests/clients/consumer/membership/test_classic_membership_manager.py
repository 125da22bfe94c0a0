"""`ClassicMembershipManager` without a network: inputs and times in, requests and callbacks out (M6, M12)."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.consumer.actions import (
    Action,
    FindCoordinator,
    GroupRebalanceConfig,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    PartitionsAssigned,
    PartitionsRevoked,
    PerformAssignment,
    SyncGroup,
    SyncGroupResponse,
)
from odradek.clients.consumer.membership.classic_membership_manager import (
    TRANSITIONS,
    ClassicMembershipManager,
    MemberState,
)
from odradek.model import ErrorCode, KafkaError, TopicPartition

TIMING = GroupRebalanceConfig(
    session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000, retry_backoff_ms=100
)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def joined(generation: int = 1, *, leader: str = "other", code: ErrorCode = ErrorCode.none) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id="me", generation_id=generation, protocol="range", leader=leader)


def synced(*partitions: TopicPartition, code: ErrorCode = ErrorCode.none) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=frozenset(partitions))


def join_in(member: ClassicMembershipManager, partitions: Iterable[TopicPartition], now: float = 0.0) -> None:
    """Join a group and take over `partitions`."""
    member.subscribe(["t"], now)
    member.coordinator_found(now)
    member.join_group_answered(joined(), now)
    member.sync_group_answered(synced(*partitions), now)
    take(member, now)
    assert member.state is MemberState.STABLE


def take(member: ClassicMembershipManager, now: float) -> list[Action]:
    work = member.pending_callback
    assert isinstance(work, PartitionsAssigned)
    member.callback_started(work)
    return member.callback_completed(work, now)


def test_the_first_member_joins_as_leader_and_is_assigned_partitions() -> None:
    member = ClassicMembershipManager(TIMING)
    assert member.subscribe(["t"], 0.0) == [FindCoordinator()]
    assert member.coordinator_found(0.1) == [JoinGroup(member_id="", generation_id=-1, owned=frozenset())]
    # KIP-394: the broker hands out a member id first.
    named = JoinGroupResponse(error_code=ErrorCode.member_id_required, member_id="me")
    assert member.join_group_answered(named, 0.2) == [JoinGroup(member_id="me", generation_id=-1, owned=frozenset())]
    leading = JoinGroupResponse(
        error_code=ErrorCode.none, member_id="me", generation_id=1, protocol="range", leader="me",
        subscriptions={"me": b"s"}, instance_ids={"me": None},
    )  # fmt: skip
    (assign,) = member.join_group_answered(leading, 3.2)
    assert isinstance(assign, PerformAssignment)
    assert assign.subscriptions == {"me": b"s"}
    assert member.assignment_computed({"me": b"a"}, 1) == [
        SyncGroup(member_id="me", generation_id=1, protocol="range", assignments={"me": b"a"})
    ]
    assert member.sync_group_answered(synced(T0, T1), 3.3) == []
    assert member.pending_callback == PartitionsAssigned(assignment={T0, T1}, added={T0, T1}, revoked=frozenset())
    assert take(member, 3.4) == []
    assert member.state is MemberState.STABLE
    assert member.owned == {T0, T1}


def test_a_follower_syncs_without_assignments() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    assert member.join_group_answered(joined(leader="other"), 0.0) == [
        SyncGroup(member_id="me", generation_id=1, protocol="range")
    ]


def test_a_static_leader_that_comes_back_skips_the_assignment() -> None:
    """KIP-814: the group is unchanged, so its leader need not compute an assignment."""
    member = ClassicMembershipManager(TIMING, group_instance_id="i")
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    answer = JoinGroupResponse(
        error_code=ErrorCode.none, member_id="me", generation_id=5, protocol="range", leader="me", skip_assignment=True
    )
    assert member.join_group_answered(answer, 0.0) == [SyncGroup(member_id="me", generation_id=5, protocol="range")]


def test_heartbeats_are_due_after_their_interval_one_at_a_time() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.next_at() == 3.0
    assert member.tick(2.9) == []
    assert member.tick(3.0) == [Heartbeat(member_id="me", generation_id=1)]
    assert member.tick(6.0) == []
    member.heartbeat_answered(ErrorCode.none, 1, 6.1)
    assert member.tick(6.1) == [Heartbeat(member_id="me", generation_id=1)]


def test_a_member_joins_a_rebalance_after_its_revoked_callback() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.heartbeat_answered(ErrorCode.rebalance_in_progress, 1, 4.0) == []
    work = member.pending_callback
    assert work == PartitionsRevoked(partitions={T0}, lost=False)
    # Heartbeats continue while the application commits.
    assert member.tick(7.0) == [Heartbeat(member_id="me", generation_id=1)]
    assert member.callback_completed(work, 7.5) == [JoinGroup(member_id="me", generation_id=1, owned=frozenset())]
    assert member.owned == frozenset()


def test_a_member_without_partitions_joins_again_at_once() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [])
    (action,) = member.heartbeat_answered(ErrorCode.rebalance_in_progress, 1, 4.0)
    assert isinstance(action, JoinGroup)


def test_a_cooperative_member_revokes_only_partitions_that_move() -> None:
    """KIP-429: moving partitions are revoked and assigned by a second rebalance."""
    member = ClassicMembershipManager(TIMING, is_cooperative=True)
    join_in(member, [T0, T1])
    assert member.heartbeat_answered(ErrorCode.rebalance_in_progress, 1, 4.0) == [
        JoinGroup(member_id="me", generation_id=1, owned=frozenset({T0, T1}))
    ]
    member.join_group_answered(joined(2), 4.1)
    member.sync_group_answered(synced(T1, T2), 4.2)
    assert member.pending_callback == PartitionsAssigned(assignment={T1, T2}, added={T2}, revoked={T0})
    assert take(member, 4.3) == [JoinGroup(member_id="me", generation_id=2, owned=frozenset({T1, T2}))]


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.illegal_generation, "me"), (ErrorCode.unknown_member_id, "")]
)
def test_a_fenced_member_has_lost_its_partitions(code: ErrorCode, member_id: str) -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.heartbeat_answered(code, 1, 4.0) == []
    work = member.pending_callback
    assert work == PartitionsRevoked(partitions={T0}, lost=True)
    assert member.callback_completed(work, 4.1) == [JoinGroup(member_id=member_id, generation_id=-1, owned=frozenset())]


def test_a_member_fenced_during_its_assigned_callback_loses_the_assigned_partitions() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    member.join_group_answered(joined(), 0.0)
    member.sync_group_answered(synced(T0), 0.0)
    work = member.pending_callback
    assert isinstance(work, PartitionsAssigned)
    member.callback_started(work)
    member.tick(3.0)
    member.heartbeat_answered(ErrorCode.unknown_member_id, 1, 3.1)
    assert member.callback_completed(work, 3.2) == []
    assert member.pending_callback == PartitionsRevoked(partitions={T0}, lost=True)


def test_a_member_without_heartbeat_responses_keeps_reading_and_finds_its_coordinator() -> None:
    """SPEC 6: a lost connection or a silent coordinator starts re-discovery; only the group takes partitions away."""
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    member.tick(3.0)
    assert member.tick(10.0) == [FindCoordinator()]
    assert member.state is MemberState.COORDINATOR_UNKNOWN
    assert member.owned == {T0}
    assert member.pending_callback is None
    assert member.coordinator_found(12.0) == [Heartbeat(member_id="me", generation_id=1)]
    assert member.state is MemberState.STABLE


def test_a_member_whose_coordinator_moves_finds_the_new_one_and_stays() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.heartbeat_answered(ErrorCode.not_coordinator, 1, 4.0) == [FindCoordinator()]
    assert member.coordinator_lost() == []
    assert member.state is MemberState.COORDINATOR_UNKNOWN


def test_a_member_leaves_after_max_poll_interval_and_rejoins_with_the_next_poll() -> None:
    """KIP-62: `max.poll.interval.ms`."""
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    member.poll_finished(1.0)
    for now in (3.0, 6.0, 9.0):
        member.tick(now)
        member.heartbeat_answered(ErrorCode.none, 1, now)
    member.coordinator_found(60.9)
    (leave,) = member.tick(61.0)
    assert isinstance(leave, LeaveGroup)
    assert leave.member_id == "me"
    assert member.state is MemberState.STALE
    assert member.tick(200.0) == []
    assert member.poll_started() == []
    work = member.pending_callback
    assert work == PartitionsRevoked(partitions={T0}, lost=True)
    assert member.callback_completed(work, 200.0) == [JoinGroup(member_id="", generation_id=-1, owned=frozenset())]


def test_a_member_that_never_polls_leaves_max_poll_interval_after_its_subscription() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 1.0)
    member.coordinator_found(1.0)
    member.join_group_answered(joined(), 1.0)
    member.sync_group_answered(synced(T0), 1.0)
    member.coordinator_found(60.9)
    (leave,) = member.tick(61.0)
    assert isinstance(leave, LeaveGroup)
    assert member.state is MemberState.STALE
    assert member.poll_started() == [JoinGroup(member_id="", generation_id=-1, owned=frozenset())]


def test_a_subscription_during_a_poll_is_within_max_poll_interval() -> None:
    member = ClassicMembershipManager(TIMING)
    member.poll_started()
    join_in(member, [T0])
    member.coordinator_found(100.0)
    assert not any(isinstance(action, LeaveGroup) for action in member.tick(100.0))


def test_waiting_in_poll_does_not_exceed_max_poll_interval() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    member.poll_finished(1.0)
    member.poll_started()
    assert member.next_at() < 61.0
    member.coordinator_found(100.0)
    assert not any(isinstance(action, LeaveGroup) for action in member.tick(100.0))


def test_a_subscription_changed_during_a_join_causes_another_join() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    assert member.subscribe(["t", "u"], 0.0) == []
    member.join_group_answered(joined(), 0.1)
    member.sync_group_answered(synced(T0), 0.2)
    assert take(member, 0.3) == []
    assert member.pending_callback == PartitionsRevoked(partitions={T0}, lost=False)


def test_an_unchanged_subscription_causes_no_rebalance() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.subscribe(["t"], 1.0) == []
    assert member.state is MemberState.STABLE


def test_heartbeat_responses_of_an_older_generation_are_ignored() -> None:
    member = ClassicMembershipManager(TIMING)
    join_in(member, [T0])
    assert member.heartbeat_answered(ErrorCode.unknown_member_id, 0, 1.0) == []
    assert member.state is MemberState.STABLE


def test_a_join_is_retried_after_a_backoff_while_the_coordinator_loads() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    assert member.join_group_answered(joined(code=ErrorCode.coordinator_load_in_progress), 1.0) == []
    assert member.next_at() == pytest.approx(1.1)
    assert member.tick(1.1) == [JoinGroup(member_id="", generation_id=-1, owned=frozenset())]


def test_a_rebalance_that_starts_during_a_sync_is_joined_at_once() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    member.join_group_answered(joined(), 0.0)
    assert member.sync_group_answered(synced(code=ErrorCode.rebalance_in_progress), 0.1) == [
        JoinGroup(member_id="me", generation_id=1, owned=frozenset())
    ]


def test_an_error_that_is_not_retriable_is_kept_for_the_application() -> None:
    member = ClassicMembershipManager(TIMING)
    member.subscribe(["t"], 0.0)
    member.coordinator_found(0.0)
    assert member.join_group_answered(joined(code=ErrorCode.inconsistent_group_protocol), 0.0) == []
    assert isinstance(member.error, KafkaError)
    assert member.error.code == ErrorCode.inconsistent_group_protocol


def test_a_dynamic_member_sends_leave_group_and_a_static_one_does_not() -> None:
    """KIP-345: a static member that restarts finds its partitions again."""
    dynamic, static = ClassicMembershipManager(TIMING), ClassicMembershipManager(TIMING, group_instance_id="i")
    for member in (dynamic, static):
        join_in(member, [T0])
    assert dynamic.leave("done") == [LeaveGroup(member_id="me", reason="done")]
    assert static.leave("done") == []
    assert dynamic.state is static.state is MemberState.UNSUBSCRIBED


def test_a_member_id_that_arrives_after_leaving_is_removed_from_the_group() -> None:
    """KIP-394: the group would wait for it."""
    member, static = ClassicMembershipManager(TIMING), ClassicMembershipManager(TIMING, group_instance_id="i")
    named = JoinGroupResponse(error_code=ErrorCode.member_id_required, member_id="late")
    for each in (member, static):
        each.subscribe(["t"], 0.0)
        each.coordinator_found(0.0)
        assert each.leave("unsubscribed") == []
        (join,) = each.subscribe(["t"], 0.1)
        assert isinstance(join, JoinGroup)
        assert join.leave_count == 1
    assert member.join_group_answered(named, 0.2) == [
        LeaveGroup(member_id="late", reason="the consumer left while it joined")
    ]
    assert member.join_group_answered(joined(), 0.2) == [
        LeaveGroup(member_id="me", reason="the consumer left while it joined")
    ]
    assert member.state is MemberState.JOINING
    assert member.member_id == ""
    assert member.join_group_answered(joined(code=ErrorCode.unknown_member_id), 0.2) == []
    assert static.join_group_answered(named, 0.2) == []


def test_every_state_can_be_reached_and_left() -> None:
    reached = {following for events in TRANSITIONS.values() for following in events.values()}
    assert reached == set(MemberState)
    assert all(events for events in TRANSITIONS.values())


codes = st.sampled_from(
    [
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.member_id_required,
    ]
)
inputs = st.sampled_from(
    [
        "coordinator found",
        "coordinator lost",
        "joined",
        "synced",
        "heartbeat_answered",
        "begin",
        "done",
        "poll",
        "polled",
        "tick",
        "subscribe",
        "assigned",
    ]
)


def feed(
    member: ClassicMembershipManager, step: str, code: ErrorCode, partitions: set[TopicPartition], now: float
) -> list[Action]:
    match step:
        case "coordinator found":
            return member.coordinator_found(now)
        case "coordinator lost":
            return member.coordinator_lost()
        case "joined":
            return member.join_group_answered(joined(int(now), code=code), now)
        case "assigned":
            return member.assignment_computed({}, member.generation_id)
        case "synced":
            return member.sync_group_answered(synced(*partitions, code=code), now)
        case "heartbeat_answered":
            return member.heartbeat_answered(code, member.generation_id, now)
        case "poll":
            return member.poll_started()
        case "polled":
            member.poll_finished(now)
            return []
        case "subscribe":
            return member.subscribe(["t", "u"][: 1 + len(partitions) % 2], now)
    return member.tick(now)


@given(
    is_cooperative=st.booleans(),
    steps=st.lists(st.tuples(inputs, codes, st.sets(st.sampled_from([T0, T1, T2]))), max_size=60),
)
def test_an_eager_member_never_joins_before_revoking_its_partitions(
    is_cooperative: bool, steps: list[tuple[str, ErrorCode, set[TopicPartition]]]
) -> None:
    """No order of events leaves the table of transitions."""
    member, now, begun = ClassicMembershipManager(TIMING, is_cooperative=is_cooperative), 0.0, None
    member.subscribe(["t"], now)
    for step, code, partitions in steps:
        now += 1.7
        actions: list[Action] = []
        if step == "begin":
            if begun is None and (begun := member.pending_callback) is not None:
                member.callback_started(begun)
        elif step == "done":
            if begun is not None:
                work, begun = begun, None
                actions = member.callback_completed(work, now)
        else:
            actions = feed(member, step, code, partitions, now)
        joins = [action for action in actions if isinstance(action, JoinGroup)]
        assert is_cooperative or not any(join.owned or member.owned for join in joins)
        assert member.generation_id >= 0 or member.state not in {MemberState.STABLE, MemberState.SYNCING}
