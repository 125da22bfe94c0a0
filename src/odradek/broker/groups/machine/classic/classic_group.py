"""The state of a classic group (SPEC 6, generation 2).

| part | content | changed by |
|---|---|---|
| durable | `record`: generation, protocol, leader, the members with their metadata and assignments | `apply` only |
| not durable | state, members, waiting requests, the deadlines of sessions and phases | requests and time |

When the group is loaded, the second part is rebuilt from the first: sessions start anew, and a generation without an
assignment is rebalanced.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

from msgspec import Struct, field

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.classic.members import AwaitingJoin, GroupMembers, Member
from odradek.broker.groups.machine.deadline_queue import DeadlineKey, Deadlines
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    FetchOffsetsRequest,
    JoinedMember,
    JoinReply,
    SyncReply,
)
from odradek.broker.groups.machine.rebalance_trace import (
    Ownership,
    RebalanceOutcome,
    RebalanceTrace,
    assigned_partitions,
    listed_partitions,
)
from odradek.broker.groups.machine.records import GroupMetadataRecord, ResultBuilder
from odradek.model import ErrorCode, TopicPartition
from odradek.model.probes import transition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import GroupMetadataValue


class State(StrEnum):
    """The state of a classic group, with Kafka's names, as in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """An event that changes a group's state."""

    FIRST_MEMBER_JOINED = "the first member joins"
    JOIN_PHASE_COMPLETE = "all members joined, or the timeout expired"
    LAST_MEMBER_LEFT = "the last member left"
    LEADER_SYNCED = "the leader sent the assignment"
    MEMBERS_CHANGED = "members joined, left or changed"
    DELETED = "the group is deleted"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {Event.FIRST_MEMBER_JOINED: State.PREPARING_REBALANCE, Event.DELETED: State.DEAD},
    State.PREPARING_REBALANCE: {
        Event.JOIN_PHASE_COMPLETE: State.COMPLETING_REBALANCE,
        Event.LAST_MEMBER_LEFT: State.EMPTY,
    },
    State.COMPLETING_REBALANCE: {
        Event.LEADER_SYNCED: State.STABLE,
        Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE,
    },
    State.STABLE: {Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE},
    State.DEAD: {},
}


JOIN_PHASE: Final = "join"
SYNC_PHASE: Final = "sync"
PENDING_MEMBERS: Final = "pending members"
SESSION: Final = "session"
PENDING_MEMBER: Final = "pending member"
"""Kinds of deadlines; `SESSION` and `PENDING_MEMBER` are of one member."""
_PENDING_BYTES: Final = 1024
"""Memory of a pending member and its deadline."""
_NO_ASSIGNMENTS: Final[Mapping[str, bytes]] = MappingProxyType({})


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The broker's configuration of classic groups."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait for its first JoinGroup response; it cannot send heartbeats before."""
    max_member_bytes: int = 2**31 - 1
    """The limit of a member's memory: a record of `__consumer_offsets` must have room for it."""
    traces_rebalances: bool = False
    """Whether each rebalance is reported with its cause and durations (`rebalance_trace`)."""


class ClassicGroup(Struct, eq=False, gc=False):
    """One classic group; `deadlines` is the queue of all groups of the coordinator.

    Untracked by the garbage collector: every id that has only offsets is one.
    """

    kind: ClassVar[str] = "classic"
    group_id: str
    settings: GroupSettings
    _deadlines: Deadlines[DeadlineKey]
    record: GroupMetadataValue | None = None
    _assignments: Mapping[str, bytes] = _NO_ASSIGNMENTS
    state: State = State.EMPTY
    protocol_type: str | None = None
    members: GroupMembers = field(default_factory=GroupMembers)
    pending_members: dict[str, bool] = {}
    """Member ids given out but not used yet (KIP-394), and whether the current rebalance waits for each."""
    pending_syncs: dict[str, None] = {}
    """Members of the generation that have not sent SyncGroup."""
    remaining_initial_delay_ms: int | None = None
    """How much longer an empty group's first rebalance may be delayed; None in other rebalances."""
    trace: RebalanceTrace | None = None
    """The current rebalance, if it is traced."""
    ownership: Ownership | None = None
    """The owners of partitions since the first traced rebalance, or since the group was loaded with members."""
    new_member_added: bool = False
    """Whether a member joined during the current delay of the first rebalance."""

    # -- durable state -------------------------------------------------------------------------------------------------

    def apply(self, value: GroupMetadataValue) -> None:
        """Replace the durable state by `value`."""
        self.record = value
        self._assignments = {member.member_id: member.assignment for member in value.members}

    @property
    def generation(self) -> int:
        """Return the recorded generation; 0 if there is no record."""
        return 0 if self.record is None else self.record.generation

    @property
    def protocol_name(self) -> str | None:
        """Return the chosen protocol of the recorded generation; None if it has none."""
        return None if self.record is None else self.record.protocol

    def assignment(self, member_id: str) -> bytes:
        """Return a member's assignment in the recorded generation; empty if it has none."""
        return self._assignments.get(member_id, b"")

    @property
    def assignments(self) -> Mapping[str, bytes]:
        """Return the assignments of the recorded generation by member id."""
        return self._assignments

    @property
    def has_assignment(self) -> bool:
        """Return whether the recorded generation has an assignment for any member."""
        return any(self._assignments.values())

    # -- loading -------------------------------------------------------------------------------------------------------

    def rebuild(self, now_ms: int) -> None:
        """Discard the state that is not durable, and rebuild it from the record."""
        self.clear_deadlines()
        self.members = GroupMembers()
        self.pending_members, self.pending_syncs = {}, {}
        self.remaining_initial_delay_ms, self.new_member_added = None, False
        self.state, self.protocol_type, self.trace, self.ownership = State.EMPTY, None, None, None
        if self._assignments and self.settings.traces_rebalances:
            self.trace_owners()
        record = self.record
        if record is None:
            return
        self.protocol_type = record.protocol_type or None
        for each in record.members:
            if each.member_id in self.members or each.group_instance_id in self.members.instance_ids:
                continue  # no coordinator writes this, but it must not prevent the other members from being loaded
            member = Member(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_ms=each.session_timeout,
                # Records of Kafka before 0.10.1 have no rebalance timeout.
                rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
                protocols=((record.protocol or "", each.subscription),),
                is_loaded=True,
            )
            self.members.add(member)
            self.reschedule_heartbeat(member, now_ms)
        if self.members:
            self.state = State.STABLE
            if record.leader is not None and record.leader in self.members:
                self.members.leader = record.leader

    # -- queries -------------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of members and pending members."""
        return self.members.size_bytes + _PENDING_BYTES * len(self.pending_members)

    def member_size_bytes(self, member_id: str) -> int:
        member = self.members.get(member_id)
        return 0 if member is None else member.size_bytes

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_unused(self) -> bool:
        """Return whether the group has no member, no pending member and no record."""
        return self.state is State.EMPTY and not self.pending_members and self.record is None

    @property
    def is_deletable(self) -> bool:
        return self.state is State.EMPTY and not self.pending_members

    def tombstones(self) -> list[GroupMetadataRecord]:
        return [GroupMetadataRecord(self.group_id, None)]

    def subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members:
            try:
                topics.update(decode_subscription(member.metadata(self.protocol_name)).topics)
            except MalformedMessageError:
                return None
        return frozenset(topics)

    def assignment_matches(self, partition_counts: Mapping[str, int]) -> bool:
        """Return whether the assigned partitions are exactly those of the subscribed topics.

        `partition_counts` has all existing topics. Return True for other protocol types
        than `consumer` and for unreadable metadata.
        """
        subscribed = self.subscribed_topics()
        if subscribed is None:
            return True
        assigned: set[TopicPartition] = set()
        try:
            for data in self._assignments.values():
                assigned.update(decode_assignment(data).partitions)
        except MalformedMessageError:
            return True
        existing = subscribed & partition_counts.keys()
        return assigned == {
            TopicPartition(topic, number) for topic in existing for number in range(partition_counts[topic])
        }

    @property
    def offset_expiration_condition(self) -> tuple[int, frozenset[str]] | None:
        """Return the start of retention and the kept topics (KIP-211), as for every `Group`.

        The start is the time of an empty group's last record. No offset may expire during a rebalance, and in a group
        with members of another protocol type than `consumer` or with an unreadable subscription.
        """
        if self.protocol_type is None:
            return -1, frozenset()
        if self.state is State.EMPTY:
            return -1 if self.record is None else self.record.current_state_timestamp, frozenset()
        topics = self.subscribed_topics() if self.state is State.STABLE else None
        return None if topics is None else (-1, topics)

    # -- checks --------------------------------------------------------------------------------------------------------

    def validate_member_id(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return an error if the member is unknown, or another member has its instance id (KIP-345)."""
        if instance_id is not None:
            current = self.members.static_member_id(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.fenced_instance_id
            if current is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def validate_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return an error for an unknown or fenced member, or a generation neither current nor its `former_epoch`."""
        error = self.validate_member_id(member_id, instance_id)
        if error is ErrorCode.none and generation not in (self.generation, self.members[member_id].former_epoch):
            return ErrorCode.illegal_generation
        return error

    def validate_commit(self, request: CommitRequest, now: Now) -> ErrorCode:
        """Return an error if the member may not commit offsets now; a valid commit counts as a heartbeat.

        In a transaction, the member may be left out, may commit during a rebalance, and sends heartbeats besides.
        """
        is_transactional = request.producer is not None
        member_id, instance_id, generation = request.member_id, request.instance_id, request.generation
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.none if is_transactional else ErrorCode.unknown_member_id
        error = self.validate_member(member_id, instance_id, generation)
        if is_transactional:
            return error
        if error is ErrorCode.none and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        if error is ErrorCode.none:
            self.reschedule_heartbeat(self.members[member_id], now.ms)
        return error

    def validate_fetch(self, request: FetchOffsetsRequest) -> ErrorCode:
        del request
        return ErrorCode.none

    # -- changes -------------------------------------------------------------------------------------------------------

    def transition(self, event: Event) -> None:
        """Change the state according to `TRANSITIONS`."""
        after = TRANSITIONS[self.state][event]
        transition("classic group", self.state.name, after.name)
        self.state = after

    def new_record(
        self, generation: int, protocol_name: str | None, assignments: Mapping[str, bytes], wall_ms: int
    ) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=protocol_name,
            leader=self.members.leader,
            current_state_timestamp=wall_ms,
            members=self.members.metadata(protocol_name, assignments),
        )

    def trace_owners(self) -> None:
        """Begin the rebalance journal with the owners in the recorded generation."""
        self.ownership = Ownership({each: assigned_partitions(data) for each, data in self._assignments.items()})

    def trace_assignment(self, member: Member, assignment: bytes, now_ms: int) -> None:
        """Record for the rebalance journal that a member gets `assignment`."""
        if self.ownership is not None:
            moved, unowned_ms = self.ownership.give(member.member_id, assigned_partitions(assignment), now_ms)
            if self.trace is not None:
                self.trace.synced(moved, unowned_ms)

    def waited_until(self, member_id: str, now_ms: int) -> None:
        """Record for the rebalance journal until when the join phase waited for a member, unless it is a delay."""
        is_delay = self.remaining_initial_delay_ms is not None
        if self.trace is not None and self.state is State.PREPARING_REBALANCE and not is_delay:
            self.trace.joined(member_id, now_ms)

    def end_trace(
        self, outcome: RebalanceOutcome, now_ms: int, out: ResultBuilder, generation: int | None = None
    ) -> None:
        """End the traced rebalance, if any, and add it to the events; `generation` defaults to the recorded one."""
        if self.trace is None or self.ownership is None:
            return
        self.ownership.clients |= {member.member_id: member.client_id for member in self.members}
        completed = self.trace.completed(
            self.group_id,
            self.generation if generation is None else generation,
            outcome,
            now_ms,
            protocol=(self.protocol_type or "", self.protocol_name or ""),
            members=len(self.members),
            ownership=self.ownership,
        )
        self.trace = None
        self.ownership.clients.clear()
        out.events.append(completed)

    def set_deadline(self, kind: str, at_ms: int, member_id: str = "") -> None:
        self._deadlines.set((self.group_id, kind, member_id), at_ms)

    def clear_deadline(self, kind: str, member_id: str = "") -> None:
        self._deadlines.clear((self.group_id, kind, member_id))

    def clear_deadlines(self) -> None:
        for kind in (JOIN_PHASE, SYNC_PHASE, PENDING_MEMBERS):
            self.clear_deadline(kind)
        for member in self.members:
            self.cancel_heartbeat(member.member_id)
        for member_id in self.pending_members:
            self.clear_deadline(PENDING_MEMBER, member_id)

    def has_deadline(self, kind: str) -> bool:
        return (self.group_id, kind, "") in self._deadlines

    def reschedule_heartbeat(self, member: Member, now_ms: int) -> None:
        """Restart a member's session timeout, unless the member waits for a response."""
        if member.awaiting_join is None and member.awaiting_sync is None:
            self.set_deadline(SESSION, now_ms + member.session_timeout_ms, member.member_id)

    def cancel_heartbeat(self, member_id: str) -> None:
        """Cancel a member's session timeout until it is restarted."""
        self.clear_deadline(SESSION, member_id)

    def remove_member(self, member_id: str, now_ms: int, *, silent_ms: int = 0) -> None:
        """Remove a member or pending member, whose waiting requests must have been answered.

        In the rebalance journal, its partitions have no owner since it became silent, `silent_ms` ago.
        """
        member = self.members.get(member_id)
        if self.ownership is not None:
            self.ownership.removed(member_id, now_ms - silent_ms)
            if member is not None:
                self.ownership.clients[member_id] = member.client_id
        if member is not None or self.pending_members.get(member_id):
            self.waited_until(member_id, now_ms)
        self.members.remove(member_id)
        self.pending_members.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        self.cancel_heartbeat(member_id)
        self.clear_deadline(PENDING_MEMBER, member_id)

    # -- replies -------------------------------------------------------------------------------------------------------

    def fail_join(self, member: Member, error: ErrorCode, member_id: str, out: ResultBuilder) -> None:
        waiting = self.members.remove_awaiting_join(member)
        if waiting is not None:
            out.reply(waiting.to, JoinReply(error=error, member_id=member_id))

    def fail_sync(self, member: Member, error: ErrorCode, out: ResultBuilder) -> None:
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, SyncReply(error=error))
            member.awaiting_sync = None

    def join_reply(self, member: Member, generation: int, protocol_name: str | None) -> JoinReply:
        """Return a member's JoinGroup response; only the leader's has `members`."""
        leads = member.member_id == self.members.leader
        return JoinReply(
            member_id=member.member_id,
            generation=generation,
            protocol_type=self.protocol_type,
            protocol_name=protocol_name,
            leader=self.members.leader or "",
            members=self._joined_members(protocol_name) if leads else (),
        )

    def _joined_members(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in self.members
        )

    def sync_reply(self, assignment: bytes) -> SyncReply:
        return SyncReply(protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=assignment)

    def await_join(self, member: Member, join: AwaitingJoin, now_ms: int, out: ResultBuilder) -> None:
        """Hold a known member's join until the next generation. Its earlier waiting join gets REBALANCE_IN_PROGRESS."""
        self.members.update(member, join.request)
        self.waited_until(member.member_id, now_ms)
        if self.ownership is not None:
            self.ownership.keep(member.member_id, listed_partitions(join.request.protocols[0][1]), now_ms)
        before = self.members.add_awaiting_join(member, join)
        if before is not None:
            out.reply(before.to, JoinReply(error=ErrorCode.rebalance_in_progress, member_id=member.member_id))
        if not member.is_new:
            self.cancel_heartbeat(member.member_id)
