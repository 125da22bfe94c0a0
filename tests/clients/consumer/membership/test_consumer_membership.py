"""The state machine of a member of the consumer protocol: every state, every event (M7, KIP-848)."""

from typing import Any
from uuid import UUID

import pytest

from odradek.clients.consumer.actions import (
    Action,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    FindCoordinator,
    LeaveGroup,
    PartitionsAssigned,
    PartitionsRevoked,
    RefreshMetadata,
)
from odradek.clients.consumer.membership.consumer_membership_manager import (
    TRANSITIONS,
    ConsumerMembershipManager,
    ConsumerMemberState,
)
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError

T, U = UUID(int=1), UUID(int=2)
NAMES: dict[UUID, str] = {T: "t"}
INTERVAL_S = 3.0


def partitions(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Client:
    """A member beside a coordinator that the test plays."""

    def __init__(self, names: dict[UUID, str] | None = None) -> None:
        self.names = dict(NAMES if names is None else names)
        self.member = ConsumerMembershipManager(
            "m", lambda topic_id: self.names.get(topic_id), max_poll_interval_ms=60_000, retry_backoff_ms=100
        )
        self.now = 0.0

    def found(self) -> "Client":
        self.member.subscribe(self.now)
        self.member.coordinator_found(self.now)
        return self

    def sent(self) -> ConsumerGroupHeartbeat:
        """Return the heartbeat that is due."""
        (action,) = self.member.tick(self.now)
        assert isinstance(action, ConsumerGroupHeartbeat)
        return action

    def answer(self, request: ConsumerGroupHeartbeat, epoch: int = 1, assignment: Any = None) -> list[Action]:
        found = {key: frozenset(numbers) for key, numbers in (assignment or {}).items()}
        return self.member.heartbeat_answered(
            ConsumerGroupHeartbeatResponse(
                request=request,
                epoch=epoch,
                heartbeat_interval_ms=round(INTERVAL_S * 1000),
                assignment=None if assignment is None else found,
            ),
            self.now,
        )

    def fail(self, request: ConsumerGroupHeartbeat, code: ErrorCode) -> list[Action]:
        response = ConsumerGroupHeartbeatResponse(request=request, error=KafkaError(code))
        return self.member.heartbeat_answered(response, self.now)

    def beat(self, epoch: int = 1, assignment: Any = None) -> ConsumerGroupHeartbeat:
        """Let the next heartbeat be answered, and return it."""
        self.now = max(self.now, self.member.next_at())
        request = self.sent()
        self.answer(request, epoch, assignment)
        return request

    def callback(self) -> Any:
        """Run the callback that is pending."""
        callback = self.member.pending_callback
        assert callback is not None
        self.member.callback_started(callback)
        self.member.callback_completed(callback, self.now)
        return callback


def stable(*numbers: int) -> Client:
    client = Client().found()
    client.beat(assignment={T: numbers} if numbers else {})
    if numbers:
        client.callback()
    client.beat()
    assert client.member.state is ConsumerMemberState.STABLE
    return client


def test_the_first_heartbeat_has_all_fields_and_later_ones_only_changed_ones() -> None:
    client = Client()
    assert client.member.subscribe(0.0) == [FindCoordinator()]
    assert client.member.tick(0.0) == []
    client.member.coordinator_found(0.0)
    first = client.beat(assignment={T: [0, 1]})
    assert (first.epoch, first.is_full, first.owned) == (0, True, {})
    assert client.callback() == PartitionsAssigned(
        assignment=partitions(0, 1), added=partitions(0, 1), revoked=frozenset()
    )
    second = client.beat()
    assert (second.epoch, second.is_full, second.owned) == (1, False, {T: frozenset({0, 1})})
    assert client.member.next_at() == client.now + INTERVAL_S
    third = client.beat()
    assert (third.is_full, third.owned) == (False, None)


def test_revoked_partitions_are_reported_only_when_the_callback_is_over() -> None:
    client = stable(0, 1)
    client.beat(epoch=1, assignment={T: [0]})
    callback = client.member.pending_callback
    assert callback == PartitionsAssigned(assignment=partitions(0), added=frozenset(), revoked=partitions(1))
    client.member.callback_started(callback)
    assert client.beat().owned is None, "the application is still at work"
    client.member.coordinator_lost()
    client.member.coordinator_found(client.now)
    assert client.beat().owned == {T: frozenset({0, 1})}, "to a new coordinator it says what it had"
    client.member.callback_completed(callback, client.now)
    assert client.beat(epoch=2).owned == {T: frozenset({0})}
    assert client.member.generation_id == 2


def test_an_assignment_that_changes_during_a_callback_is_reconciled_after_it() -> None:
    client = stable(0)
    client.beat(assignment={T: [0, 1]})
    callback = client.member.pending_callback
    assert callback is not None
    client.member.callback_started(callback)
    client.beat(assignment={T: [0, 1, 2]})
    client.member.callback_completed(callback, client.now)
    assert client.member.state is ConsumerMemberState.RECONCILING
    assert client.callback().added == partitions(2)
    assert client.beat().owned == {T: frozenset({0, 1, 2})}


def test_topics_whose_names_are_unknown_are_taken_when_the_metadata_has_them() -> None:
    client = Client().found()
    assert client.answer(client.sent(), assignment={U: [0], T: [0]}) == [RefreshMetadata()]
    assert client.callback().assignment == partitions(0)
    client.names[U] = "u"
    assert client.member.metadata_updated() == []
    assert client.callback().added == partitions(0, topic="u")


def test_a_topic_that_was_made_again_is_revoked_and_assigned() -> None:
    client = stable(0)
    client.names = {U: "t"}
    client.beat(assignment={U: [0]})
    callback = client.callback()
    assert (callback.revoked, callback.added) == (partitions(0), partitions(0))
    assert client.beat().owned == {U: frozenset({0})}


@pytest.mark.parametrize("code", [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id])
def test_a_fenced_member_loses_everything_before_it_joins_again(code: ErrorCode) -> None:
    client = stable(0, 1)
    client.now += INTERVAL_S
    client.fail(client.sent(), code)
    assert (client.member.state, client.member.generation_id) == (ConsumerMemberState.LOST, -1)
    assert client.member.tick(client.now) == []
    assert client.callback() == PartitionsRevoked(partitions=partitions(0, 1), lost=True)
    again = client.beat(epoch=5, assignment={T: [1]})
    assert (again.epoch, again.is_full, again.owned, again.member_id) == (0, True, {}, "m")


def test_a_member_without_partitions_that_is_fenced_joins_at_once() -> None:
    client = stable()
    client.now += INTERVAL_S
    client.fail(client.sent(), ErrorCode.unknown_member_id)
    assert client.sent().epoch == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.group_id_not_found,
        ErrorCode.unreleased_instance_id,
        ErrorCode.group_authorization_failed,
        ErrorCode.invalid_regular_expression,
        ErrorCode.unsupported_assignor,
    ],
)
def test_an_error_that_no_retry_mends_is_raised(code: ErrorCode) -> None:
    client = Client().found()
    client.fail(client.sent(), code)
    assert client.member.state is ConsumerMemberState.FATAL
    assert isinstance(client.member.error, KafkaError)
    assert client.member.error.code is code


def test_a_request_to_a_coordinator_that_loads_is_retried_after_the_backoff() -> None:
    client = Client().found()
    assert client.fail(client.sent(), ErrorCode.coordinator_load_in_progress) == []
    assert client.member.next_at() == pytest.approx(0.1)
    client.now = client.member.next_at()
    assert client.sent().is_full


def test_a_moved_coordinator_is_looked_up_and_gets_a_full_heartbeat() -> None:
    client = stable(0)
    client.now += INTERVAL_S
    assert client.fail(client.sent(), ErrorCode.not_coordinator) == [FindCoordinator()]
    assert client.member.coordinator_lost() == [], "it is looked up once"
    client.member.coordinator_found(client.now)
    again = client.sent()
    assert (again.epoch, again.is_full, again.owned) == (1, True, {T: frozenset({0})})


def test_a_member_that_is_not_polled_leaves_and_loses_its_partitions_with_the_next_poll() -> None:
    client = stable(0)
    client.member.poll_finished(client.now)
    for _ in range(30):
        if client.member.next_at() >= 60:
            break
        client.beat()
    client.now = 70.0
    assert client.member.tick(client.now) == [
        LeaveGroup(member_id="m", reason="the application has not polled for max.poll.interval.ms")
    ]
    assert client.member.pending_callback is None
    client.member.poll_started()
    assert client.callback() == PartitionsRevoked(partitions=partitions(0), lost=True)
    assert client.sent().epoch == 0


def test_a_member_that_never_polls_leaves_max_poll_interval_after_its_subscription() -> None:
    client = Client().found()
    client.beat(assignment={T: [0]})
    client.now = 60.0
    (leave,) = client.member.tick(client.now)
    assert isinstance(leave, LeaveGroup)
    client.member.poll_started()
    assert client.member.pending_callback is None
    assert client.sent().epoch == 0


def test_a_subscription_that_changes_is_sent_at_once() -> None:
    client = stable(0)
    client.member.subscribe(client.now)
    request = client.sent()
    assert (request.is_full, request.epoch) == (True, 1)
    client.member.subscribe(client.now)
    assert client.member.tick(client.now) == [], "one request at a time"
    client.answer(request)
    assert client.sent().is_full


def test_a_join_that_is_answered_after_the_member_left_is_undone() -> None:
    client = Client().found()
    request = client.sent()
    assert client.member.leave("done") == []
    assert client.answer(request) == [LeaveGroup(member_id="m", reason="the consumer left while it joined")]
    assert client.member.state is ConsumerMemberState.UNSUBSCRIBED


def test_an_answer_to_a_request_before_the_member_was_fenced_is_ignored() -> None:
    client = stable(0)
    client.now += INTERVAL_S
    request = client.sent()
    client.member.commit_refused(ErrorCode.unknown_member_id, client.now)
    assert client.answer(request, epoch=9, assignment={T: [0, 1]}) == []
    assert client.member.state is ConsumerMemberState.LOST


def test_a_member_leaves_once() -> None:
    client = stable(0)
    assert client.member.leave("done") == [LeaveGroup(member_id="m", reason="done")]
    assert client.member.leave("done") == []
    assert client.member.owned == frozenset()
    assert client.member.next_at() == float("inf")


def in_state(state: ConsumerMemberState) -> Client:
    client = Client() if state is ConsumerMemberState.UNSUBSCRIBED else stable(0)
    member = client.member
    if state is ConsumerMemberState.JOINING:
        return Client().found()
    if state is ConsumerMemberState.RECONCILING:
        client.beat(assignment={T: [0, 1]})
    elif state in {ConsumerMemberState.LOST, ConsumerMemberState.STALE}:
        member.commit_refused(ErrorCode.unknown_member_id, client.now)
        if state is ConsumerMemberState.STALE:
            member.poll_finished(client.now)
            client.now += 60
            member.tick(client.now)
    elif state is ConsumerMemberState.FATAL:
        member.failed(UnavailableError("gone"))
    assert member.state is state
    return client


EVENTS = {
    "subscribe": lambda client: client.member.subscribe(client.now),
    "poll started": lambda client: client.member.poll_started(),
    "poll finished": lambda client: client.member.poll_finished(client.now),
    "leave": lambda client: client.member.leave("done"),
    "coordinator found": lambda client: client.member.coordinator_found(client.now),
    "coordinator lost": lambda client: client.member.coordinator_lost(),
    "commit refused": lambda client: client.member.commit_refused(ErrorCode.unknown_member_id, client.now),
    "commit stale": lambda client: client.member.commit_refused(ErrorCode.stale_member_epoch, client.now),
    "failed": lambda client: client.member.failed(UnavailableError("gone")),
    "metadata": lambda client: client.member.metadata_updated(),
    "time": lambda client: client.member.tick(client.now + 1_000),
    "late answer": lambda client: client.answer(
        ConsumerGroupHeartbeat(number=0, member_id="m", epoch=1, is_full=False, owned=None), epoch=9
    ),
    "callback": lambda client: client.callback() if client.member.pending_callback else None,
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", ConsumerMemberState)
def test_every_event_is_possible_in_every_state(state: ConsumerMemberState, event: str) -> None:
    """A state changes only as the table says, and partitions are given up only by callbacks and by leaving."""
    client = in_state(state)
    owned = client.member.owned
    EVENTS[event](client)
    reached = client.member.state
    possible = set(TRANSITIONS[state].values()) | {state}
    if ConsumerMemberState.LOST in possible:
        possible.add(ConsumerMemberState.JOINING)  # it had nothing to give up
    assert reached in possible
    if event not in {"leave", "callback"}:
        assert client.member.owned == owned
