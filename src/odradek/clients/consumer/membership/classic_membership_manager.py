"""Membership of a consumer in a classic group: a pure state machine, which returns actions.

```
unsubscribed → finding coordinator → joining → syncing → assigning → stable ⇄ coordinator unknown
                                        ↑        revoking ←─────────────┘
```
The application's `poll` runs the callback in `pending_callback`, then calls `callback_completed`: callbacks never run
while the application processes records. After REBALANCE_IN_PROGRESS a member revokes partitions and joins again.
Without a coordinator it keeps reading and looks for the coordinator (SPEC 6). It leaves if the application has not
polled for `max.poll.interval.ms` (KIP-62).

An eager member revokes all partitions before it joins; a cooperative one (KIP-429) only those of unsubscribed topics.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import Final

from odradek.clients.consumer.actions import (
    Action,
    FindCoordinator,
    GroupRebalanceConfig,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    Partitions,
    PartitionsAssigned,
    PartitionsRevoked,
    PerformAssignment,
    RebalanceCallback,
    SyncGroup,
    SyncGroupResponse,
)
from odradek.clients.consumer.membership.interface import ConsumerState
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.model.probes import probe, transition

NO_GENERATION: Final = -1


class MemberState(StrEnum):
    """The state of a member, with the names of Kafka's `MemberState` where it has that state."""

    UNSUBSCRIBED = "unsubscribed"
    FINDING_COORDINATOR = "finding coordinator"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNING = "assigning"
    STABLE = "stable"
    COORDINATOR_UNKNOWN = "coordinator unknown"
    STALE = "stale"
    FATAL = "fatal"


_S = MemberState
_ALWAYS: Final = {"leave": _S.UNSUBSCRIBED, "fail": _S.FATAL}
_SUBSCRIBED: Final = {"fenced": _S.REVOKING, **_ALWAYS}
_POLLED: Final = {"poll timeout": _S.STALE, **_SUBSCRIBED}
TRANSITIONS: Final[Mapping[MemberState, Mapping[str, MemberState]]] = {
    _S.UNSUBSCRIBED: {"subscribe": _S.FINDING_COORDINATOR, "leave": _S.UNSUBSCRIBED},
    _S.FINDING_COORDINATOR: {"coordinator found": _S.JOINING, **_ALWAYS},
    _S.REVOKING: {"revoked": _S.JOINING, "revoked without coordinator": _S.FINDING_COORDINATOR, **_POLLED},
    _S.JOINING: {
        "joined": _S.SYNCING, "retry": _S.JOINING, "coordinator lost": _S.FINDING_COORDINATOR, **_SUBSCRIBED,
    },
    _S.SYNCING: {"synced": _S.ASSIGNING, "retry": _S.JOINING, "coordinator lost": _S.FINDING_COORDINATOR, **_POLLED},
    _S.ASSIGNING: {"assigned": _S.STABLE, "assigned without coordinator": _S.COORDINATOR_UNKNOWN, **_POLLED},
    _S.STABLE: {"rebalance": _S.REVOKING, "coordinator lost": _S.COORDINATOR_UNKNOWN, **_POLLED},
    _S.COORDINATOR_UNKNOWN: {"coordinator found": _S.STABLE, "rebalance": _S.REVOKING, **_POLLED},
    _S.STALE: {"poll": _S.REVOKING, **_ALWAYS},
    _S.FATAL: {"leave": _S.UNSUBSCRIBED},
}  # fmt: skip

CONSUMER_STATES: Final[Mapping[MemberState, ConsumerState]] = dict.fromkeys(MemberState, ConsumerState.STOPPED) | {
    _S.UNSUBSCRIBED: ConsumerState.DOWN,
    _S.FATAL: ConsumerState.DOWN,
    _S.FINDING_COORDINATOR: ConsumerState.DISCOVERING,
    _S.STABLE: ConsumerState.MEMBER,
    _S.COORDINATOR_UNKNOWN: ConsumerState.REDISCOVERING,
}
_HEARTBEATING: Final = {_S.REVOKING, _S.SYNCING, _S.ASSIGNING, _S.STABLE}
_POLL_REQUIRED: Final = {_S.REVOKING, _S.SYNCING, _S.ASSIGNING, _S.STABLE, _S.COORDINATOR_UNKNOWN}
"""States in which the poll timeout applies."""
_COORDINATOR_ERRORS: Final = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
_RETRIABLE_JOIN_ERRORS: Final = {ErrorCode.coordinator_load_in_progress, ErrorCode.rebalance_in_progress}
_FENCED_ERRORS: Final = {ErrorCode.illegal_generation, ErrorCode.unknown_member_id}


class ClassicMembershipManager:
    """The `Membership` of one classic member. Methods that change the state return the actions to perform, in order."""

    def __init__(
        self,
        rebalance_config: GroupRebalanceConfig,
        *,
        group_instance_id: str | None = None,
        is_cooperative: bool = False,
    ) -> None:
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.protocol = ""
        self.is_leader = False
        self.owned: Partitions = frozenset()
        """The partitions that the application reads since its last callback."""
        self.error: OdradekError | None = None
        """The error that prevents membership (state FATAL)."""
        self._assignment_error: Exception | None = None
        """The error of the assignor in this leader; the member joins again after `poll` has raised it."""
        self._leave_count = 0
        """The number of times that the member has left, by which late JoinGroup responses are recognized."""
        self._rebalance_config = rebalance_config
        self._group_instance_id = group_instance_id
        self._is_cooperative = is_cooperative
        self._topics: frozenset[str] | None = None
        self._has_coordinator = False
        self._finding_coordinator = False
        self._join_at = inf
        self._assignment: Partitions = frozenset()
        self._is_lost = False
        self._rejoin_needed = False
        self._last_response_at = 0.0
        self._next_heartbeat_at = inf
        self._heartbeat_in_flight = False
        self._poll_deadline = -inf
        """When the application must poll again; infinite while it waits in `poll`."""

    @property
    def is_subscribed(self) -> bool:
        return self.state is not MemberState.UNSUBSCRIBED

    @property
    def consumer_state(self) -> ConsumerState:
        return CONSUMER_STATES[self.state]

    # ---- calls of the application -------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now: float) -> list[Action]:
        """Join the group with these topics, or join again if the topics changed."""
        wanted = frozenset(topics)
        changed, self._topics = wanted != self._topics, wanted
        if self.state is MemberState.UNSUBSCRIBED:
            self._transition("subscribe")
            if self._poll_deadline < inf:
                self.poll_finished(now)  # the first poll must come in time, too
            return self._join_found_coordinator() if self._has_coordinator else self._find_coordinator()
        return self.rebalance(now) if changed else []

    def rebalance(self, now: float) -> list[Action]:
        """Revoke partitions and join again, or remember to do so when the current join is complete."""
        if self.state in {MemberState.STABLE, MemberState.COORDINATOR_UNKNOWN}:
            self._transition("rebalance")
            return self._revoke_or_join(now)
        self._rejoin_needed = self.state in {MemberState.JOINING, MemberState.SYNCING, MemberState.ASSIGNING}
        return []

    def poll_started(self) -> list[Action]:
        self._poll_deadline = inf
        if self.state is MemberState.STALE:
            self._transition("poll")
            return self._revoke_lost()
        return []

    def poll_finished(self, now: float) -> None:
        self._poll_deadline = now + self._rebalance_config.max_poll_interval_ms / 1000

    @property
    def pending_callback(self) -> RebalanceCallback | None:
        if self.state is MemberState.REVOKING:
            return PartitionsRevoked(partitions=self._partitions_to_revoke(), lost=self._is_lost)
        if self.state is MemberState.ASSIGNING:
            kept = self.owned & self._assignment
            return PartitionsAssigned(
                assignment=self._assignment, added=self._assignment - kept, revoked=self.owned - kept
            )
        return None

    def callback_started(self, callback: RebalanceCallback) -> None:
        if isinstance(callback, PartitionsAssigned):
            self._rejoin_needed = self._rejoin_needed or bool(callback.revoked)
            self.owned = callback.assignment

    def callback_completed(self, callback: RebalanceCallback, now: float) -> list[Action]:
        if isinstance(callback, PartitionsRevoked):
            self.owned -= callback.partitions
            return self._revoke_or_join(now) if self.state is MemberState.REVOKING else []
        if self.state is not MemberState.ASSIGNING:
            return []
        self._transition("assigned" if self._has_coordinator else "assigned without coordinator")
        if self._rejoin_needed:
            return self.rebalance(now)
        return []

    def leave(self, reason: str) -> list[Action]:
        """Leave the group. A static member sends no LeaveGroup, so that it can return to its partitions (KIP-345)."""
        leaving = self._leave_group(reason)
        self._leave_count += 1
        self._transition("leave")
        self._reset_generation(member_id="")
        self._topics, self.owned, self._is_lost, self._rejoin_needed = None, frozenset(), False, False
        self._assignment_error = None
        return leaving

    def _leave_group(self, reason: str) -> list[Action]:
        if not self.member_id or not self._has_coordinator or self._group_instance_id is not None:
            return []
        return [LeaveGroup(member_id=self.member_id, reason=reason)]

    # ---- responses of the coordinator ---------------------------------------------------------------------------

    def coordinator_found(self, now: float) -> list[Action]:
        self._finding_coordinator, self._has_coordinator, self._last_response_at = False, True, now
        if self.state is MemberState.FINDING_COORDINATOR:
            return self._join_found_coordinator()
        if self.state is MemberState.COORDINATOR_UNKNOWN:
            self._transition("coordinator found")
        return self._send_heartbeat(now) if self.state in _HEARTBEATING and self.generation_id != NO_GENERATION else []

    def coordinator_lost(self) -> list[Action]:
        """Find the coordinator again after it moved, disconnected, or sent no response for `session.timeout.ms`."""
        self._has_coordinator, self._heartbeat_in_flight, self._next_heartbeat_at = False, False, inf
        if "coordinator lost" in TRANSITIONS[self.state]:
            self._transition("coordinator lost")
        self._join_at = inf
        return (
            []
            if self.state in {MemberState.UNSUBSCRIBED, MemberState.FATAL, MemberState.STALE}
            else self._find_coordinator()
        )

    def join_group_answered(self, answer: JoinGroupResponse, now: float) -> list[Action]:
        if answer.leave_count != self._leave_count:
            return self._leave_after_late_join(answer)
        if self.state is not MemberState.JOINING:
            return []
        self._last_response_at = now
        if answer.error_code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return [self._join_group()]
        if answer.error_code != ErrorCode.none:
            return self._handle_join_error(answer.error_code, now)
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.protocol = answer.protocol or ""
        self.is_leader = answer.leader == answer.member_id
        self._next_heartbeat_at = now + self._rebalance_config.heartbeat_interval_ms / 1000
        self._transition("joined")
        if self.is_leader and not answer.skip_assignment:
            return [
                PerformAssignment(
                    protocol=self.protocol,
                    subscriptions=answer.subscriptions,
                    instance_ids=answer.instance_ids,
                    generation_id=self.generation_id,
                )
            ]
        return self.assignment_computed({}, self.generation_id)

    def assignment_computed(self, assignments: Mapping[str, bytes], generation_id: int) -> list[Action]:
        """Send SyncGroup with the leader's computed assignments, empty for other members."""
        if self.state is not MemberState.SYNCING or generation_id != self.generation_id:
            return []
        return [
            SyncGroup(
                member_id=self.member_id,
                generation_id=generation_id,
                protocol=self.protocol,
                assignments=assignments,
            )
        ]

    def assignment_failed(self, error: Exception, generation_id: int) -> list[Action]:
        """Keep the assignor's error for the next poll, and send no SyncGroup for this generation."""
        if self.state is MemberState.SYNCING and generation_id == self.generation_id:
            self._transition("retry")
            self._assignment_error, self._join_at = error, inf
        return []

    def take_assignment_error(self, now: float) -> Exception | None:
        """Return, once, the error of the assignor in this leader, and join again after `retry.backoff.ms`."""
        error, self._assignment_error = self._assignment_error, None
        if error is not None and self.state is MemberState.JOINING:
            self._join_at = now + self._rebalance_config.retry_backoff_ms / 1000
        return error

    def sync_group_answered(self, answer: SyncGroupResponse, now: float) -> list[Action]:
        if self.state is not MemberState.SYNCING:
            return []
        self._last_response_at = now
        if answer.error_code == ErrorCode.rebalance_in_progress:
            self._transition("retry")
            return [self._join_group()]
        if answer.error_code != ErrorCode.none:
            return self._handle_join_error(answer.error_code, now)
        self._assignment = answer.assignment
        self._transition("synced")
        return []

    def heartbeat_answered(self, code: ErrorCode, generation_id: int, now: float) -> list[Action]:
        """Handle a Heartbeat response, unless it is for an earlier generation."""
        self._heartbeat_in_flight = False
        if generation_id != self.generation_id or self.state not in _HEARTBEATING:
            return []
        self._last_response_at = now
        if code == ErrorCode.rebalance_in_progress:
            return self.rebalance(now)
        if code in _COORDINATOR_ERRORS:
            return self.coordinator_lost()
        if code in _FENCED_ERRORS:
            return self.fenced(code)
        if code not in {ErrorCode.none, ErrorCode.coordinator_load_in_progress}:
            return self.failed(KafkaError(code))
        return []

    def fenced(self, code: ErrorCode) -> list[Action]:
        """Revoke all partitions as lost, because other members may own them, and join again."""
        if "fenced" not in TRANSITIONS[self.state]:
            return []
        probe("consumer: the member is fenced")
        self._transition("fenced")
        self._reset_generation(member_id="" if code == ErrorCode.unknown_member_id else self.member_id)
        return self._revoke_lost()

    def commit_refused(self, code: ErrorCode, now: float) -> list[Action]:
        if code in _FENCED_ERRORS:
            return self.fenced(code)
        return self.rebalance(now) if code == ErrorCode.rebalance_in_progress else []

    def failed(self, error: OdradekError) -> list[Action]:
        if "fail" in TRANSITIONS[self.state]:
            self._transition("fail")
            self.error = error
            self._reset_generation(member_id="")
        return []

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_at(self) -> float:
        times = [self._join_at if self.state is MemberState.JOINING else inf]
        if self.state in _HEARTBEATING and self._has_coordinator:
            times.append(
                inf if self._heartbeat_in_flight or self.generation_id == NO_GENERATION else self._next_heartbeat_at
            )
            times.append(self._last_response_at + self._rebalance_config.session_timeout_ms / 1000)
        if self.state in _POLL_REQUIRED:
            times.append(self._poll_deadline)
        return min(times)

    def tick(self, now: float) -> list[Action]:
        if self.state in _POLL_REQUIRED and now >= self._poll_deadline:
            return self._expire_poll_timer()
        if self.state is MemberState.JOINING and now >= self._join_at:
            return [self._join_group()]
        if self.state in _HEARTBEATING and self._has_coordinator:
            if now >= self._last_response_at + self._rebalance_config.session_timeout_ms / 1000:
                return self.coordinator_lost()
            if not self._heartbeat_in_flight and now >= self._next_heartbeat_at:
                return self._send_heartbeat(now)
        return []

    # ---- helper methods -----------------------------------------------------------------------------------------

    def _transition(self, event: str) -> None:
        following = TRANSITIONS[self.state].get(event)
        assert following is not None, f"a member that is {self.state} can't be {event}"
        transition("classic member", self.state.name, following.name)
        self.state = following

    def _find_coordinator(self) -> list[Action]:
        if self._finding_coordinator:
            return []
        self._finding_coordinator = True
        return [FindCoordinator()]

    def _join_found_coordinator(self) -> list[Action]:
        self._transition("coordinator found")
        return [self._join_group()]

    def _join_group(self) -> JoinGroup:
        self._join_at, self._rejoin_needed = inf, False
        return JoinGroup(
            member_id=self.member_id,
            generation_id=self.generation_id,
            owned=self.owned,
            leave_count=self._leave_count,
        )

    def _leave_after_late_join(self, answer: JoinGroupResponse) -> list[Action]:
        """Leave with the member id of a late JoinGroup response, so that no rebalance waits for that member."""
        probe("consumer: a JoinGroup response arrives after the consumer has left")
        is_member = answer.error_code in {ErrorCode.none, ErrorCode.member_id_required}
        if not is_member or not answer.member_id or not self._has_coordinator or self._group_instance_id is not None:
            return []
        return [LeaveGroup(member_id=answer.member_id, reason="the consumer left while it joined")]

    def _partitions_to_revoke(self) -> Partitions:
        """Return all owned partitions; for a cooperative member that lost none, only those of unsubscribed topics."""
        if self._is_lost or not self._is_cooperative:
            return self.owned
        return frozenset(TopicPartition(*each) for each in self.owned if each.topic not in (self._topics or ()))

    def _revoke_or_join(self, now: float) -> list[Action]:
        """Join, unless partitions must be revoked first."""
        if self._partitions_to_revoke():
            return []
        self._is_lost = False
        self._last_response_at = now
        self._transition("revoked" if self._has_coordinator else "revoked without coordinator")
        return [self._join_group()] if self._has_coordinator else self._find_coordinator()

    def _revoke_lost(self) -> list[Action]:
        self._is_lost = True
        return self._revoke_or_join(self._last_response_at)

    def _handle_join_error(self, code: ErrorCode, now: float) -> list[Action]:
        if code in _COORDINATOR_ERRORS:
            return self.coordinator_lost()
        if code in _FENCED_ERRORS:
            return self.fenced(code)
        if code in _RETRIABLE_JOIN_ERRORS:
            self._transition("retry")
            self._join_at = now + self._rebalance_config.retry_backoff_ms / 1000
            return []
        return self.failed(KafkaError(code))

    def _send_heartbeat(self, now: float) -> list[Action]:
        self._heartbeat_in_flight = True
        self._next_heartbeat_at = now + self._rebalance_config.heartbeat_interval_ms / 1000
        return [Heartbeat(member_id=self.member_id, generation_id=self.generation_id)]

    def _expire_poll_timer(self) -> list[Action]:
        probe("consumer: the application has not polled for max.poll.interval.ms")
        leaving = self._leave_group("the application has not polled for max.poll.interval.ms")
        self._transition("poll timeout")
        self._reset_generation(member_id="")
        return leaving

    def _reset_generation(self, *, member_id: str) -> None:
        self.member_id, self.generation_id, self.is_leader = member_id, NO_GENERATION, False
        self._heartbeat_in_flight, self._next_heartbeat_at, self._join_at = False, inf, inf
