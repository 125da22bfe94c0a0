"""A consumer's membership of a group in the classic protocol: one pure machine, `now` in (monotonic s), actions out.

```
down → discovering → joining → syncing → starting → member ⇄ rediscovering
                        ↑         stopped ←───────────┘
```
The application takes part where partitions change hands: `work` is what it must do next, and only `done` moves the
machine on. So callbacks run in the caller's `poll`, and what it was still working on is done by then. A member that is
told of a rebalance stops and joins again, one that hears nothing of its coordinator keeps reading and looks for it
(SPEC 6), one whose application has not polled for `max.poll.interval.ms` leaves (KIP-62).

Cooperative members (KIP-429) keep reading what they do not give up; eager ones release everything before they join.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import Final

from odradek.clients.consumer.actions import (
    Action,
    Assign,
    FindCoordinator,
    Join,
    JoinAnswer,
    Leave,
    MemberTiming,
    Partitions,
    Release,
    SendHeartbeat,
    Sync,
    SyncAnswer,
    Take,
    Work,
)
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition

NO_GENERATION: Final = -1


class MemberState(StrEnum):
    """Where a member is."""

    DOWN = "down"
    DISCOVERING = "discovering"
    STOPPED = "stopped"
    JOINING = "joining"
    SYNCING = "syncing"
    STARTING = "starting"
    MEMBER = "member"
    REDISCOVERING = "rediscovering"
    AWAY = "away"
    FAILED = "failed"


_S = MemberState
_ALWAYS: Final = {"leave": _S.DOWN, "fail": _S.FAILED}
TRANSITIONS: Final[Mapping[MemberState, Mapping[str, MemberState]]] = {
    _S.DOWN: {"subscribe": _S.DISCOVERING, "leave": _S.DOWN},
    _S.DISCOVERING: {"found": _S.JOINING, **_ALWAYS},
    _S.STOPPED: {
        "released": _S.JOINING, "released alone": _S.DISCOVERING, "fenced": _S.STOPPED, "expire": _S.AWAY, **_ALWAYS,
    },
    _S.JOINING: {"joined": _S.SYNCING, "refused": _S.JOINING, "lost": _S.DISCOVERING, "fenced": _S.STOPPED, **_ALWAYS},
    _S.SYNCING: {
        "synced": _S.STARTING, "refused": _S.JOINING, "lost": _S.DISCOVERING, "fenced": _S.STOPPED, "expire": _S.AWAY,
        **_ALWAYS,
    },
    _S.STARTING: {
        "taken": _S.MEMBER, "taken alone": _S.REDISCOVERING, "fenced": _S.STOPPED, "expire": _S.AWAY, **_ALWAYS,
    },
    _S.MEMBER: {"rebalance": _S.STOPPED, "lost": _S.REDISCOVERING, "fenced": _S.STOPPED, "expire": _S.AWAY, **_ALWAYS},
    _S.REDISCOVERING: {
        "found": _S.MEMBER, "rebalance": _S.STOPPED, "fenced": _S.STOPPED, "expire": _S.AWAY, **_ALWAYS,
    },
    _S.AWAY: {"poll": _S.STOPPED, **_ALWAYS},
    _S.FAILED: {"leave": _S.DOWN},
}  # fmt: skip

_BEATING: Final = {_S.STOPPED, _S.SYNCING, _S.STARTING, _S.MEMBER}
_WATCHED: Final = {_S.STOPPED, _S.SYNCING, _S.STARTING, _S.MEMBER, _S.REDISCOVERING}
"""Here the application must go on polling."""
_ELSEWHERE: Final = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
_AGAIN: Final = {ErrorCode.coordinator_load_in_progress, ErrorCode.rebalance_in_progress}
_FENCED: Final = {ErrorCode.illegal_generation, ErrorCode.unknown_member_id}


class Membership:
    """See the module. Every input returns the actions to carry out, in order."""

    def __init__(
        self, timing: MemberTiming, *, group_instance_id: str | None = None, is_cooperative: bool = False
    ) -> None:
        self.state = MemberState.DOWN
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.protocol = ""
        self.is_leader = False
        self.owned: Partitions = frozenset()
        """What the application reads, as far as it has been told."""
        self.error: OdradekError | None = None
        """Why the member can never join (state FAILED)."""
        self.rebalances = 0
        """How many assignments were taken."""
        self._departures = 0
        """How often it left. An answer to a JoinGroup from before is not for this membership."""
        self._timing = timing
        self._group_instance_id = group_instance_id
        self._is_cooperative = is_cooperative
        self._topics: frozenset[str] | None = None
        self._has_coordinator = False
        self._looking = False
        self._joining_at = inf
        self._assignment: Partitions = frozenset()
        self._lost = False
        self._rejoin = False
        self._heard_at = 0.0
        self._beat_at = inf
        self._beating = False
        self._polled_by = inf

    # ---- what the application says ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now: float) -> list[Action]:
        """Want these topics; joins, or joins again if they are others than before."""
        wanted = frozenset(topics)
        changed, self._topics = wanted != self._topics, wanted
        if self.state is MemberState.DOWN:
            self._move("subscribe")
            return self._found() if self._has_coordinator else self._look()
        return self.rebalance(now) if changed else []

    def rebalance(self, now: float) -> list[Action]:
        """Join again: the subscription or the topics' partitions have changed."""
        if self.state in {MemberState.MEMBER, MemberState.REDISCOVERING}:
            self._move("rebalance")
            return self._stop(now)
        self._rejoin = self.state in {MemberState.JOINING, MemberState.SYNCING, MemberState.STARTING}
        return []

    def polling(self) -> list[Action]:
        """The application is in `poll`; it may wait there as long as it likes."""
        self._polled_by = inf
        if self.state is MemberState.AWAY:
            self._move("poll")
            return self._stop_lost()
        return []

    def polled(self, now: float) -> None:
        """The application has left `poll` to work on what it got."""
        self._polled_by = now + self._timing.max_poll_interval_ms / 1000

    @property
    def work(self) -> Work | None:
        """What the application has to do before anything goes on."""
        if self.state is MemberState.STOPPED:
            return Release(partitions=self._releasing(), lost=self._lost)
        if self.state is MemberState.STARTING:
            kept = self.owned & self._assignment
            return Take(assignment=self._assignment, added=self._assignment - kept, revoked=self.owned - kept)
        return None

    def begun(self, work: Work) -> None:
        """The application works on it: whatever comes now, it has heard of this assignment."""
        if isinstance(work, Take):
            self._rejoin = self._rejoin or bool(work.revoked)
            self.owned = work.assignment

    def done(self, work: Work, now: float) -> list[Action]:
        """The application has done it."""
        if isinstance(work, Release):
            self.owned -= work.partitions
            return self._stop(now) if self.state is MemberState.STOPPED else []
        if self.state is not MemberState.STARTING:
            return []
        self.rebalances += 1
        self._move("taken" if self._has_coordinator else "taken alone")
        if self._rejoin:
            return self.rebalance(now)
        return []

    def leave(self, reason: str) -> list[Action]:
        """Go for good; a static member only goes silent, so that it finds its partitions again (KIP-345)."""
        leaving = self._leaving(reason)
        self._departures += 1
        self._move("leave")
        self._forget(member_id="")
        self._topics, self.owned, self._lost, self._rejoin = None, frozenset(), False, False
        return leaving

    def _leaving(self, reason: str) -> list[Action]:
        if not self.member_id or not self._has_coordinator or self._group_instance_id is not None:
            return []
        return [Leave(member_id=self.member_id, reason=reason)]

    # ---- what the coordinator says ------------------------------------------------------------------------------

    def coordinator_found(self, now: float) -> list[Action]:
        """There is a connection to the coordinator."""
        self._looking, self._has_coordinator, self._heard_at = False, True, now
        if self.state is MemberState.DISCOVERING:
            return self._found()
        if self.state is MemberState.REDISCOVERING:
            self._move("found")
        return self._beat(now) if self.state in _BEATING and self.generation_id != NO_GENERATION else []

    def coordinator_lost(self) -> list[Action]:
        """The coordinator is another, its connection is closed, or it has been silent for `session.timeout.ms`."""
        self._has_coordinator, self._beating, self._beat_at = False, False, inf
        if "lost" in TRANSITIONS[self.state]:
            self._move("lost")
        self._joining_at = inf
        return [] if self.state in {MemberState.DOWN, MemberState.FAILED, MemberState.AWAY} else self._look()

    def joined(self, answer: JoinAnswer, now: float) -> list[Action]:
        """JoinGroup was answered."""
        if answer.departures != self._departures:
            return self._disown(answer)
        if self.state is not MemberState.JOINING:
            return []
        self._heard_at = now
        if answer.error_code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return [self._join()]
        if answer.error_code != ErrorCode.none:
            return self._refused(answer.error_code, now)
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.protocol = answer.protocol or ""
        self.is_leader = answer.leader == answer.member_id
        self._beat_at = now + self._timing.heartbeat_interval_ms / 1000
        self._move("joined")
        if self.is_leader and not answer.skip_assignment:
            return [
                Assign(
                    protocol=self.protocol,
                    subscriptions=answer.subscriptions,
                    instance_ids=answer.instance_ids,
                    generation_id=self.generation_id,
                )
            ]
        return self.assigned({}, self.generation_id)

    def assigned(self, assignments: Mapping[str, bytes], generation_id: int) -> list[Action]:
        """The leader knows who gets what in this generation."""
        if self.state is not MemberState.SYNCING or generation_id != self.generation_id:
            return []
        return [
            Sync(
                member_id=self.member_id,
                generation_id=generation_id,
                protocol=self.protocol,
                assignments=assignments,
            )
        ]

    def synced(self, answer: SyncAnswer, now: float) -> list[Action]:
        """SyncGroup was answered."""
        if self.state is not MemberState.SYNCING:
            return []
        self._heard_at = now
        if answer.error_code == ErrorCode.rebalance_in_progress:
            self._move("refused")
            return [self._join()]
        if answer.error_code != ErrorCode.none:
            return self._refused(answer.error_code, now)
        self._assignment = answer.assignment
        self._move("synced")
        return []

    def beaten(self, code: ErrorCode, generation_id: int, now: float) -> list[Action]:
        """Heartbeat was answered. What it says of another generation than ours is old."""
        self._beating = False
        if generation_id != self.generation_id or self.state not in _BEATING:
            return []
        self._heard_at = now
        if code == ErrorCode.rebalance_in_progress:
            return self.rebalance(now)
        if code in _ELSEWHERE:
            return self.coordinator_lost()
        if code in _FENCED:
            return self.fenced(code)
        if code not in {ErrorCode.none, ErrorCode.coordinator_load_in_progress}:
            return self.failed(KafkaError(code))
        return []

    def fenced(self, code: ErrorCode) -> list[Action]:
        """The coordinator does not count us as a member of this generation: what we own may be another's now."""
        if "fenced" not in TRANSITIONS[self.state]:
            return []
        self._move("fenced")
        self._forget(member_id="" if code == ErrorCode.unknown_member_id else self.member_id)
        return self._stop_lost()

    def failed(self, error: OdradekError) -> list[Action]:
        """Nothing that we do helps; the application is told at its next poll."""
        if "fail" in TRANSITIONS[self.state]:
            self._move("fail")
            self.error = error
            self._forget(member_id="")
        return []

    # ---- what the clock says ------------------------------------------------------------------------------------

    def next_at(self) -> float:
        """When `tick` will have something to do."""
        times = [self._joining_at if self.state is MemberState.JOINING else inf]
        if self.state in _BEATING and self._has_coordinator:
            times.append(inf if self._beating or self.generation_id == NO_GENERATION else self._beat_at)
            times.append(self._heard_at + self._timing.session_timeout_ms / 1000)
        if self.state in _WATCHED:
            times.append(self._polled_by)
        return min(times)

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        if self.state in _WATCHED and now >= self._polled_by:
            return self._expire()
        if self.state is MemberState.JOINING and now >= self._joining_at:
            return [self._join()]
        if self.state in _BEATING and self._has_coordinator:
            if now >= self._heard_at + self._timing.session_timeout_ms / 1000:
                return self.coordinator_lost()
            if not self._beating and now >= self._beat_at:
                return self._beat(now)
        return []

    # ---- pieces -------------------------------------------------------------------------------------------------

    def _move(self, event: str) -> None:
        following = TRANSITIONS[self.state].get(event)
        assert following is not None, f"a member that is {self.state} can't be {event}"
        self.state = following

    def _look(self) -> list[Action]:
        if self._looking:
            return []
        self._looking = True
        return [FindCoordinator()]

    def _found(self) -> list[Action]:
        self._move("found")
        return [self._join()]

    def _join(self) -> Join:
        self._joining_at, self._rejoin = inf, False
        return Join(
            member_id=self.member_id,
            generation_id=self.generation_id,
            owned=self.owned,
            departures=self._departures,
        )

    def _disown(self, answer: JoinAnswer) -> list[Action]:
        """Give back the id that was given to a consumer that has left meanwhile: a rebalance would wait for it."""
        is_member = answer.error_code in {ErrorCode.none, ErrorCode.member_id_required}
        if not is_member or not answer.member_id or not self._has_coordinator or self._group_instance_id is not None:
            return []
        return [Leave(member_id=answer.member_id, reason="the consumer left while it joined")]

    def _releasing(self) -> Partitions:
        """All of it, or what a cooperative member does not subscribe any more."""
        if self._lost or not self._is_cooperative:
            return self.owned
        return frozenset(TopicPartition(*each) for each in self.owned if each.topic not in (self._topics or ()))

    def _stop(self, now: float) -> list[Action]:
        """Join as soon as nothing is left to release."""
        if self._releasing():
            return []
        self._lost = False
        self._heard_at = now
        self._move("released" if self._has_coordinator else "released alone")
        return [self._join()] if self._has_coordinator else self._look()

    def _stop_lost(self) -> list[Action]:
        self._lost = True
        return self._stop(self._heard_at)

    def _refused(self, code: ErrorCode, now: float) -> list[Action]:
        """JoinGroup or SyncGroup failed."""
        if code in _ELSEWHERE:
            return self.coordinator_lost()
        if code in _FENCED:
            return self.fenced(code)
        if code in _AGAIN:
            self._move("refused")
            self._joining_at = now + self._timing.retry_backoff_ms / 1000
            return []
        return self.failed(KafkaError(code))

    def _beat(self, now: float) -> list[Action]:
        self._beating = True
        self._beat_at = now + self._timing.heartbeat_interval_ms / 1000
        return [SendHeartbeat(member_id=self.member_id, generation_id=self.generation_id)]

    def _expire(self) -> list[Action]:
        leaving = self._leaving("the application has not polled for max.poll.interval.ms")
        self._move("expire")
        self._forget(member_id="")
        return leaving

    def _forget(self, *, member_id: str) -> None:
        self.member_id, self.generation_id, self.is_leader = member_id, NO_GENERATION, False
        self._beating, self._beat_at, self._joining_at = False, inf, inf
