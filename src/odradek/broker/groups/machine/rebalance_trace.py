"""The content of the rebalance journal: causes and durations of rebalances, and how long partitions had no owner.

`Ownership` has the owner of each partition. A member of the classic protocol loses the partitions that its JoinGroup
request does not list as owned (an eager member lists none) and those that its SyncGroup response lacks. It loses all
when it leaves or, if its session expires, from its last heartbeat on. In the consumer protocol heartbeat responses give
and take partitions (`consumer.group_trace`). `RebalanceTrace` follows one rebalance from its cause until all members
have their partitions; its result is a `RebalanceCompleted`. Nothing here is durable: a new coordinator starts with the
recorded assignment.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

from odradek.broker.coordinators.machine import Now
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import decode_assignment, decode_subscription
from odradek.protocol.errors import MalformedMessageError

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a JoinGroup request: `(name, metadata)` pairs."""
MOST_WAITED_FOR: Final = 10
"""Limit of `RebalanceCompleted.waited_for` and `.revocations`, which keep the slowest members."""


class CauseKind(StrEnum):
    """The kinds of causes of a rebalance."""

    JOINED = "joined"
    REJOINED = "joined again"
    LEFT = "left"
    SESSION_EXPIRED = "session expired"
    REBALANCE_TIMEOUT = "rebalance timeout"
    METADATA_CHANGED = "metadata changed"
    PARTITIONS_REVOKED = "partitions revoked"
    COORDINATOR_MOVED = "coordinator moved"
    FENCED = "fenced"
    GROUP_FULL = "group full"


class Cause(Struct, frozen=True, kw_only=True):
    """The cause of a rebalance. `text` is for users, with the client's reason (KIP-800); `members` are member ids."""

    kind: CauseKind
    text: str
    members: tuple[str, ...] = ()


class RebalanceOutcome(StrEnum):
    """The end of a rebalance: all members have their partitions, another rebalance began, or no member is left."""

    STABLE = "stable"
    OVERTAKEN = "overtaken"
    EMPTY = "empty"


class OwnershipChange(NamedTuple):
    """Partitions that a member got or, if not `gets`, lost.

    `at_ms` is of the monotonic clock; in a report it is relative to the start of the rebalance.
    """

    at_ms: int
    member_id: str
    gets: bool
    partitions: frozenset[TopicPartition]


class RebalanceCompleted(Struct, frozen=True, kw_only=True):
    """A rebalance that has ended. `started_ms` is in ms since 1970, the other times are durations."""

    group_id: str
    generation: int
    outcome: RebalanceOutcome
    cause: Cause
    started_ms: int
    duration_ms: int
    join_ms: int | None
    """From the cause to the end of the join phase; None if not reached, and in consumer groups."""
    assign_ms: int | None
    """From the end of the join phase (in consumer groups the cause) to the assignment; None if not reached."""
    protocol_type: str
    protocol_name: str
    members: int
    waited_for: tuple[tuple[str, int], ...]
    """`(member id, ms that the coordinator waited for it)`, the slowest members first.

    A member that had joined before, or joined during the initial delay of a group's first rebalance, is not one."""
    timed_out: tuple[str, ...]
    """Members that were removed because they did not join (in consumer groups: revoke, join or sync) in time."""
    moved: tuple[TopicPartition, ...]
    """Partitions whose owner changed."""
    unowned_ms: Mapping[TopicPartition, int]
    """How long each partition had no owner before it got one."""
    group_type: str = "classic"
    """`classic` or `consumer`; in a consumer group `generation` is the group's epoch."""
    revocations: tuple[tuple[str, int], ...] = ()
    """`(member id, ms to revoke its partitions)`, the slowest members first; empty in classic groups."""
    owned: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    """The partitions of each member at the end."""
    clients: Mapping[str, str] = field(default_factory=dict)
    """The client ids of the members that the other fields name."""
    changes: tuple[OwnershipChange, ...] = ()
    """Ownership changes since the previous `RebalanceCompleted`; `at_ms` counts from the start, and may be negative."""


MOST_CHANGES: Final = 10_000
"""Limit of the ownership changes between two reports; the oldest are dropped. Replaced static members add changes
without a rebalance, and so without a report."""


class Ownership:
    """The owners of partitions in a group of consumers; groups of other protocols have none."""

    def __init__(self, owned: Mapping[str, Iterable[TopicPartition]]) -> None:
        self.clients: dict[str, str] = {}
        """The client ids of members, also of those that were removed since the last report."""
        self._owned: dict[str, set[TopicPartition]] = {}
        self._last_owner: dict[TopicPartition, str] = {}
        self._unowned_since_ms: dict[TopicPartition, int] = {}
        self._changes = deque[OwnershipChange](maxlen=MOST_CHANGES)
        for member_id, partitions in owned.items():
            self._owned[member_id] = set(partitions)
            self._last_owner.update(dict.fromkeys(self._owned[member_id], member_id))

    def keep(self, member_id: str, kept: Set[TopicPartition], now_ms: int) -> None:
        """Take from a member all partitions except `kept`."""
        owned = self._owned.get(member_id)
        if not owned:
            return
        lost = frozenset(owned - kept)
        if not lost:
            return
        self._unowned_since_ms.update(dict.fromkeys(lost, now_ms))
        self._changes.append(OwnershipChange(now_ms, member_id, False, lost))
        owned &= kept

    def removed(self, member_id: str, since_ms: int) -> None:
        """Take all partitions from a removed member; they have no owner from `since_ms` on."""
        self.keep(member_id, frozenset(), since_ms)
        self._owned.pop(member_id, None)

    def replaced(self, old_id: str, new_id: str, now_ms: int) -> None:
        """Move the partitions of a restarted static member from its old id to its new one."""
        owned = self._owned.pop(old_id, None)
        if owned is not None:
            self._changes.append(OwnershipChange(now_ms, old_id, False, frozenset(owned)))
            self._changes.append(OwnershipChange(now_ms, new_id, True, frozenset(owned)))
            self._owned[new_id] = owned
            self._last_owner.update(dict.fromkeys(owned, new_id))

    def give(
        self, member_id: str, assigned: Set[TopicPartition], now_ms: int
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """Set a member's partitions. Return new ones that another member had, and how long new ones had no owner."""
        self.keep(member_id, assigned, now_ms)
        owned = self._owned.setdefault(member_id, set())
        moved, unowned_ms = [], {}
        new = frozenset(assigned - owned)
        if new:
            self._changes.append(OwnershipChange(now_ms, member_id, True, new))
        for partition in new:
            since_ms = self._unowned_since_ms.pop(partition, None)
            if since_ms is not None:
                unowned_ms[partition] = now_ms - since_ms
            if self._last_owner.get(partition, member_id) != member_id:
                moved.append(partition)
            self._last_owner[partition] = member_id
        owned |= assigned
        return moved, unowned_ms

    def report(self, since_ms: int) -> tuple[dict[str, frozenset[TopicPartition]], tuple[OwnershipChange, ...]]:
        """Return the partitions by member, and the changes since the last call with `at_ms` relative to `since_ms`."""
        changes = sorted(self._changes, key=lambda each: each.at_ms)
        self._changes.clear()
        owned = {member_id: frozenset(some) for member_id, some in self._owned.items() if some}
        return owned, tuple(each._replace(at_ms=each.at_ms - since_ms) for each in changes)

    def clear(self) -> None:
        """Forget all owners; unreported changes stay."""
        self._owned.clear()
        self._last_owner.clear()
        self._unowned_since_ms.clear()


class RebalanceTrace:
    """One rebalance that has not ended; `waiting` are the members whose JoinGroup already waited when it began."""

    def __init__(self, cause: Cause, now: Now, waiting: Iterable[str]) -> None:
        self.cause = cause
        self._started = now
        self._joined_ms = dict.fromkeys(waiting, 0)
        self._timed_out: list[str] = []
        self._join_ms: int | None = None
        self._assign_ms: int | None = None
        self._moved: list[TopicPartition] = []
        self._unowned_ms: dict[TopicPartition, int] = {}
        self._revoked_ms: dict[str, int] = {}

    def not_awaited(self, member_id: str) -> None:
        self._joined_ms.setdefault(member_id, 0)

    def joined(self, member_id: str, now_ms: int) -> None:
        """Record until when the join phase waited for a member; only the first call counts."""
        self._joined_ms.setdefault(member_id, now_ms - self._started.ms)

    def reached_epoch(self, member_id: str, now_ms: int, since_ms: int | None = None) -> None:
        """Record how long, at most since `since_ms`, the group waited for a member; the last call counts."""
        self._joined_ms[member_id] = now_ms - max(self._started.ms, since_ms or 0)

    def timed_out(self, member_id: str) -> None:
        """Record that a member was removed because the rebalance timeout expired."""
        self._timed_out.append(member_id)

    def join_phase_completed(self, now_ms: int) -> None:
        self._join_ms = now_ms - self._started.ms

    def assigned(self, now_ms: int) -> None:
        """Record that the leader sent the assignment, or that the coordinator computed it."""
        self._assign_ms = now_ms - self._started.ms - (self._join_ms or 0)

    def synced(self, moved: Iterable[TopicPartition], unowned_ms: Mapping[TopicPartition, int]) -> None:
        """Record the result of `Ownership.give` for a member."""
        self._moved += moved
        self._unowned_ms.update(unowned_ms)

    def revoked(self, member_id: str, took_ms: int) -> None:
        self._revoked_ms[member_id] = max(took_ms, self._revoked_ms.get(member_id, 0))

    def completed(
        self,
        group_id: str,
        generation: int,
        outcome: RebalanceOutcome,
        now_ms: int,
        *,
        protocol: tuple[str, str],
        members: int,
        ownership: Ownership,
        group_type: str = "classic",
    ) -> RebalanceCompleted:
        """Return the ended rebalance and the report of `ownership`; `protocol` is `(type, name)`, `members` a count."""
        owned, changes = ownership.report(self._started.ms)
        waited_for, revocations = _slowest(self._joined_ms), _slowest(self._revoked_ms)
        if group_type == "consumer" and outcome is RebalanceOutcome.OVERTAKEN:
            waited_for = ()  # the group was still waiting, and for others
        named = {*self.cause.members, *self._timed_out, *dict(waited_for), *dict(revocations)}
        return RebalanceCompleted(
            group_id=group_id,
            generation=generation,
            outcome=outcome,
            cause=self.cause,
            started_ms=self._started.wall_ms,
            duration_ms=now_ms - self._started.ms,
            join_ms=self._join_ms,
            assign_ms=self._assign_ms,
            protocol_type=protocol[0],
            protocol_name=protocol[1],
            members=members,
            waited_for=waited_for,
            timed_out=tuple(self._timed_out),
            moved=tuple(self._moved),
            unowned_ms=self._unowned_ms,
            group_type=group_type,
            revocations=revocations,
            owned=owned,
            clients={each: name for each, name in ownership.clients.items() if each in named},
            changes=changes,
        )


def _slowest(took_ms: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    slowest = sorted(took_ms.items(), key=lambda each: -each[1])[:MOST_WAITED_FOR]
    return tuple((member_id, waited_ms) for member_id, waited_ms in slowest if waited_ms > 0)


def only_ownership_changed(before: Protocols, after: Protocols) -> bool:
    """Return whether protocol names and topics are equal; False if a subscription cannot be read."""
    try:
        return [(name, decode_subscription(data).topics) for name, data in before] == [
            (name, decode_subscription(data).topics) for name, data in after
        ]
    except MalformedMessageError:
        return False


def assigned_partitions(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an encoded assignment; empty if it cannot be read."""
    try:
        return frozenset(decode_assignment(data).partitions if data else ())
    except MalformedMessageError:
        return frozenset()


def listed_partitions(metadata: bytes) -> frozenset[TopicPartition]:
    """Return the owned partitions of an encoded subscription; empty if it cannot be read."""
    try:
        return frozenset(decode_subscription(metadata).owned_partitions)
    except MalformedMessageError:
        return frozenset()
