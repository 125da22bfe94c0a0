"""Membership of a consumer in a group of the consumer protocol (KIP-848): a pure state machine, which returns actions.

```
unsubscribed → joining → stable ⇄ reconciling
                  ↑        │ fenced
                  └─ lost ←┘ ← stale (no poll for `max.poll.interval.ms`)
```
ConsumerGroupHeartbeat joins, stays and leaves. The coordinator assigns: the member revokes and adds partitions to match
the assignment, and reports its partitions with the next heartbeat. Only then do other members get the revoked ones.
A fenced member revokes all partitions and joins again. While a callback is pending, heartbeats continue.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import inf
from typing import Final
from uuid import UUID

from odradek.clients.consumer.actions import (
    Action,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    FindCoordinator,
    LeaveGroup,
    Partitions,
    PartitionsAssigned,
    PartitionsRevoked,
    RebalanceCallback,
    RefreshMetadata,
)
from odradek.clients.consumer.membership.interface import ConsumerState
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition

JOINING_EPOCH: Final = 0
NO_EPOCH: Final = -1
"""The epoch in commits while the consumer is not a member."""
Assignment = Mapping[UUID, frozenset[int]]


class ConsumerMemberState(StrEnum):
    """The state of a member, with the names of Kafka's `MemberState` where it has that state."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    LOST = "lost"
    """The member was fenced, and must revoke its partitions before it joins again."""
    STALE = "stale"
    FATAL = "fatal"


_S = ConsumerMemberState
_ALWAYS: Final = {"leave": _S.UNSUBSCRIBED, "fail": _S.FATAL}
_MEMBER: Final = {"fenced": _S.LOST, "poll timeout": _S.STALE, **_ALWAYS}
TRANSITIONS: Final[Mapping[ConsumerMemberState, Mapping[str, ConsumerMemberState]]] = {
    _S.UNSUBSCRIBED: {"subscribe": _S.JOINING, "leave": _S.UNSUBSCRIBED},
    _S.JOINING: {"joined": _S.STABLE, "fenced": _S.LOST, **_ALWAYS},
    _S.STABLE: {"assignment": _S.RECONCILING, **_MEMBER},
    _S.RECONCILING: {"reconciled": _S.STABLE, **_MEMBER},
    _S.LOST: {"given up": _S.JOINING, "poll timeout": _S.STALE, **_ALWAYS},
    _S.STALE: {"poll": _S.LOST, **_ALWAYS},
    _S.FATAL: {"leave": _S.UNSUBSCRIBED},
}

CONSUMER_STATES: Final[Mapping[ConsumerMemberState, tuple[ConsumerState, ConsumerState]]] = {
    _S.UNSUBSCRIBED: (ConsumerState.DOWN, ConsumerState.DOWN),
    _S.JOINING: (ConsumerState.STOPPED, ConsumerState.DISCOVERING),
    _S.STABLE: (ConsumerState.MEMBER, ConsumerState.REDISCOVERING),
    _S.RECONCILING: (ConsumerState.MEMBER, ConsumerState.REDISCOVERING),
    _S.LOST: (ConsumerState.STOPPED, ConsumerState.STOPPED),
    _S.STALE: (ConsumerState.STOPPED, ConsumerState.STOPPED),
    _S.FATAL: (ConsumerState.DOWN, ConsumerState.DOWN),
}
"""SPEC 6's state of a member with a connection to its coordinator, and of one without."""
_HEARTBEATING: Final = {_S.JOINING, _S.STABLE, _S.RECONCILING}
_POLL_REQUIRED: Final = {_S.STABLE, _S.RECONCILING, _S.LOST}
_COORDINATOR_ERRORS: Final = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
_FENCED_ERRORS: Final = {ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found}


class ConsumerMembershipManager:
    """The `Membership` of one member. `topic_name` returns a topic's name by id, None if the metadata lacks it."""

    def __init__(
        self,
        member_id: str,
        topic_name: Callable[[UUID], str | None],
        *,
        max_poll_interval_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self.state = ConsumerMemberState.UNSUBSCRIBED
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.owned: Partitions = frozenset()
        """The partitions that the application reads since its last callback."""
        self.error: OdradekError | None = None
        self._topic_name = topic_name
        self._max_poll_interval_s = max_poll_interval_ms / 1000
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._has_coordinator = False
        self._finding_coordinator = False
        self._assignment: Assignment = {}
        """The partitions that the coordinator assigned last."""
        self._ids: dict[str, UUID] = {}
        """The ids of the topics in `owned`."""
        self._acknowledged: Assignment = {}
        """The owned partitions after the last completed callback, as heartbeats report them."""
        self._says_owned = self._says_all = False
        """Whether the next heartbeat contains the owned partitions, or all fields."""
        self._heartbeat_interval_s = 0.0
        self._next_heartbeat_at = -inf
        self._sent: ConsumerGroupHeartbeat | None = None
        self._count = 0
        self._poll_deadline = -inf
        """When the application must poll again; infinite while it waits in `poll`."""

    @property
    def generation_id(self) -> int:
        return self.epoch if self.epoch > JOINING_EPOCH else NO_EPOCH

    @property
    def is_subscribed(self) -> bool:
        return self.state is not _S.UNSUBSCRIBED

    @property
    def consumer_state(self) -> ConsumerState:
        connected, disconnected = CONSUMER_STATES[self.state]
        return connected if self._has_coordinator else disconnected

    # ---- calls of the application -------------------------------------------------------------------------------

    def subscribe(self, now: float) -> list[Action]:
        """Join the group, or send a changed subscription."""
        self._says_all = True
        if self.state is _S.UNSUBSCRIBED:
            self._transition("subscribe")
            if self._poll_deadline < inf:
                self.poll_finished(now)  # the first poll must come in time, too
        self._next_heartbeat_at = now
        return [] if self._has_coordinator else self._find_coordinator()

    def poll_started(self) -> list[Action]:
        self._poll_deadline = inf
        if self.state is _S.STALE:
            self._transition("poll")
            return self._give_up_or_join()
        return []

    def poll_finished(self, now: float) -> None:
        self._poll_deadline = now + self._max_poll_interval_s

    @property
    def pending_callback(self) -> RebalanceCallback | None:
        if self.state is _S.LOST:
            return PartitionsRevoked(partitions=self.owned, lost=True)
        if self.state is _S.RECONCILING:
            assignment, ids, _ = self._named()
            kept = frozenset(each for each in self.owned & assignment if ids[each.topic] == self._ids[each.topic])
            return PartitionsAssigned(assignment=assignment, added=assignment - kept, revoked=self.owned - kept)
        return None

    def callback_started(self, callback: RebalanceCallback) -> None:
        if isinstance(callback, PartitionsAssigned):
            _, ids, _ = self._named()
            self.owned = callback.assignment
            self._ids = {each.topic: ids[each.topic] for each in self.owned}

    def callback_completed(self, callback: RebalanceCallback, now: float) -> list[Action]:
        """Report the owned partitions with a heartbeat, or join again if they were lost."""
        if isinstance(callback, PartitionsRevoked):
            self.owned -= callback.partitions
            return self._give_up_or_join() if self.state is _S.LOST else []
        if self.state is not _S.RECONCILING:
            return []
        self._acknowledged = self._by_id()
        self._says_owned, self._next_heartbeat_at = True, now
        if not self._has_to_reconcile():
            self._transition("reconciled")
        return []

    def leave(self, reason: str) -> list[Action]:
        leaving = self._leave_group(reason)
        self._transition("leave")
        self._forget()
        return leaving

    def take_assignment_error(self, now: float) -> Exception | None:
        del now
        return None

    # ---- responses of the coordinator ---------------------------------------------------------------------------

    def coordinator_found(self, now: float) -> list[Action]:
        """Send a heartbeat with all fields, because the coordinator may be another broker."""
        self._finding_coordinator, self._has_coordinator = False, True
        self._says_all, self._sent, self._next_heartbeat_at = True, None, now
        return []

    def coordinator_lost(self) -> list[Action]:
        self._has_coordinator, self._sent = False, None
        return self._find_coordinator() if self.state in _HEARTBEATING | {_S.LOST} else []

    def heartbeat_answered(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> list[Action]:
        """Handle the response to the last heartbeat. If the consumer left while it joined, leave the group again."""
        if self._sent is None or answer.request.number != self._sent.number:
            is_ghost = answer.error is None and answer.request.epoch == JOINING_EPOCH and not self.is_subscribed
            reason = "the consumer left while it joined"
            return [LeaveGroup(member_id=self.member_id, reason=reason)] if is_ghost else []
        self._sent = None
        if answer.error is not None:
            return self._handle_error(answer.error, now)
        if self.state is _S.JOINING:
            self._transition("joined")
        self.epoch = answer.epoch
        self._heartbeat_interval_s = answer.heartbeat_interval_ms / 1000
        # Changes since the request was sent are sent at once.
        if not (self._says_all or self._says_owned):
            self._next_heartbeat_at = now + self._heartbeat_interval_s
        if answer.assignment is not None:
            self._assignment = answer.assignment
        return self.metadata_updated()

    def metadata_updated(self) -> list[Action]:
        """Reconcile with the assigned topics that the metadata has; request metadata for the others."""
        if self.state not in {_S.STABLE, _S.RECONCILING}:
            return []
        if self.state is _S.STABLE and self._has_to_reconcile():
            self._transition("assignment")
        _, _, is_complete = self._named()
        return [] if is_complete else [RefreshMetadata()]

    def _handle_error(self, error: KafkaError, now: float) -> list[Action]:
        code = error.code
        self._says_all = True
        if code in _COORDINATOR_ERRORS:
            return self.coordinator_lost()
        if code == ErrorCode.coordinator_load_in_progress:
            self._next_heartbeat_at = now + self._retry_backoff_s
            return []
        if code in _FENCED_ERRORS and self.epoch != JOINING_EPOCH:
            return self._fenced(now)
        return self.failed(error)

    def commit_refused(self, code: ErrorCode, now: float) -> list[Action]:
        """Revoke all partitions as lost if the coordinator does not know the member or its epoch."""
        is_fenced = code in _FENCED_ERRORS and self.state in {_S.STABLE, _S.RECONCILING}
        return self._fenced(now) if is_fenced else []

    def _fenced(self, now: float) -> list[Action]:
        self._transition("fenced")
        self._forget()
        self._next_heartbeat_at = now
        return self._give_up_or_join()

    def failed(self, error: OdradekError) -> list[Action]:
        if "fail" in TRANSITIONS[self.state]:
            self._transition("fail")
            self._forget()
            self.error = error
        return []

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_at(self) -> float:
        sends = self.state in _HEARTBEATING and self._has_coordinator and self._sent is None
        poll_ends_at = self._poll_deadline if self.state in _POLL_REQUIRED else inf
        return min(self._next_heartbeat_at if sends else inf, poll_ends_at)

    def tick(self, now: float) -> list[Action]:
        if self.state in _POLL_REQUIRED and now >= self._poll_deadline:
            leaving = self._leave_group("the application has not polled for max.poll.interval.ms")
            self._transition("poll timeout")
            self._forget()
            return leaving
        if now < self.next_at():
            return []
        self._next_heartbeat_at = now + self._heartbeat_interval_s
        joins = self.state is _S.JOINING
        self._count += 1
        self._sent = ConsumerGroupHeartbeat(
            number=self._count,
            member_id=self.member_id,
            epoch=JOINING_EPOCH if joins else self.epoch,
            is_full=joins or self._says_all,
            owned=self._acknowledged if joins or self._says_all or self._says_owned else None,
        )
        self._says_all = self._says_owned = False
        return [self._sent]

    # ---- helper methods -----------------------------------------------------------------------------------------

    def _transition(self, event: str) -> None:
        following = TRANSITIONS[self.state].get(event)
        assert following is not None, f"a member that is {self.state} can't be {event}"
        self.state = following

    def _find_coordinator(self) -> list[Action]:
        if self._finding_coordinator:
            return []
        self._finding_coordinator = True
        return [FindCoordinator()]

    def _leave_group(self, reason: str) -> list[Action]:
        if self.epoch == JOINING_EPOCH or not self._has_coordinator:
            return []
        return [LeaveGroup(member_id=self.member_id, reason=reason)]

    def _forget(self) -> None:
        """Reset epoch and assignment; `owned` stays until it is revoked, unless the consumer has left."""
        self.epoch, self._assignment, self._acknowledged, self._sent = JOINING_EPOCH, {}, {}, None
        self._says_owned = False
        if self.state is _S.UNSUBSCRIBED:
            self.owned, self._ids, self.error = frozenset(), {}, None

    def _give_up_or_join(self) -> list[Action]:
        """Join again, unless lost partitions must be revoked first."""
        if self.owned:
            return []
        self._ids = {}
        self._transition("given up")
        return [] if self._has_coordinator else self._find_coordinator()

    def _named(self) -> tuple[Partitions, dict[str, UUID], bool]:
        """Return the assignment to known topics, the ids of these by name, and whether all topics are known."""
        names = {topic_id: self._topic_name(topic_id) for topic_id in self._assignment}
        ids = {name: topic_id for topic_id, name in names.items() if name is not None}
        found = frozenset(
            TopicPartition(name, number) for name, topic_id in ids.items() for number in self._assignment[topic_id]
        )
        return found, ids, None not in names.values()

    def _has_to_reconcile(self) -> bool:
        assignment, ids, _ = self._named()
        return assignment != self.owned or any(ids[name] != topic_id for name, topic_id in self._ids.items())

    def _by_id(self) -> Assignment:
        found: dict[UUID, set[int]] = {}
        for topic, number in self.owned:
            found.setdefault(self._ids[topic], set()).add(number)
        return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
