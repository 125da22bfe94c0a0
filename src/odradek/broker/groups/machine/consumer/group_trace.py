"""The rebalances of one group of the consumer protocol, for the rebalance journal; nothing here is durable.

A rebalance begins when the group's epoch increases, and ends when every member has reached this epoch and its target.
It is overtaken if the epoch increases again. A partition has no owner from the response that takes it from a member (or
the member's removal, or the last heartbeat of an expired session) until the response that gives it to another.
"""

from collections.abc import Iterable

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.group_update import MemberUpdate
from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember, MemberState
from odradek.broker.groups.machine.rebalance_trace import (
    Cause,
    CauseKind,
    Ownership,
    RebalanceCompleted,
    RebalanceOutcome,
    RebalanceTrace,
)
from odradek.metadata.image import ClusterImage
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE


class GroupTrace:
    """Records the rebalances of one group, starting with the current members and partitions of `group`."""

    def __init__(self, group: ConsumerGroup, image: ClusterImage) -> None:
        self._group_id = group.group_id
        self._epoch = group.epoch
        self._members = set(group.members)
        self._behind: set[str] = set()
        """The members that have not reached the group's epoch."""
        self._is_assigned = True
        self._assignor = ""
        self._revoking_since_ms: dict[str, int] = {}
        self._held_up: set[str] = set()
        """The members that have waited for partitions of others since the rebalance began."""
        self._released_ms = 0
        """When a member last gave partitions up."""
        self._ownership = Ownership(
            {member_id: _named(member.assigned, image) for member_id, member in group.members.items()}
        )
        self._ownership.clients |= {each: member.subscription.client_id for each, member in group.members.items()}
        self._trace: RebalanceTrace | None = None

    def epoch_changed(self, epoch: int, cause: Cause, now: Now) -> list[RebalanceCompleted]:
        """Begin a rebalance and return the overtaken one, if any. A rebalance without targets yet continues instead."""
        if self._trace is not None and not self._is_assigned:
            self._epoch, self._behind = epoch, set(self._members)
            return []
        overtaken = self._end(RebalanceOutcome.OVERTAKEN, now)
        self._epoch, self._is_assigned, self._behind, self._held_up = epoch, False, set(self._members), set()
        self._trace = RebalanceTrace(cause, now, ())
        return overtaken

    def assigned(self, assignor: str, now: Now) -> None:
        """Record that the targets of the epoch were computed by `assignor`."""
        self._is_assigned, self._assignor = True, assignor
        if self._trace is not None:
            self._trace.assigned(now.ms)

    def member_updated(self, update: MemberUpdate, image: ClusterImage, now: Now) -> list[RebalanceCompleted]:
        """Record a member's new partitions and epoch; return the rebalance if this completes it."""
        member_id, after = update.after.member_id, update.after
        if update.replaced is not None:
            self._forget(update.replaced)
            self._ownership.replaced(update.replaced, member_id, now.ms)
        self._members.add(member_id)
        self._ownership.clients[member_id] = after.subscription.client_id
        if update.awaits_target:
            self._behind.add(member_id)
            return []
        if update.changes_assignment:
            self._note_assignment(after, image, now)
        if after.state is MemberState.STABLE and after.epoch >= self._epoch:
            if member_id in self._behind and self._trace is not None:
                self._trace.reached_epoch(member_id, now.ms, self._released_ms if member_id in self._held_up else None)
            self._behind.discard(member_id)
        else:
            self._behind.add(member_id)
            if after.state is MemberState.UNRELEASED_PARTITIONS:
                self._held_up.add(member_id)
        return self._maybe_end(now)

    def _note_assignment(self, after: ConsumerGroupMember, image: ClusterImage, now: Now) -> None:
        member_id = after.member_id
        moved, unowned_ms = self._ownership.give(member_id, _named(after.assigned, image), now.ms)
        since_ms = self._revoking_since_ms.pop(member_id, None)
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            self._revoking_since_ms[member_id] = now.ms if since_ms is None else since_ms
        elif since_ms is not None:
            self._released_ms = now.ms
        if self._trace is not None:
            self._trace.synced(moved, unowned_ms)
            if since_ms is not None:
                self._trace.revoked(member_id, now.ms - since_ms)

    def members_removed(self, member_ids: Iterable[str], since_ms: int, *, timed_out: bool) -> None:
        """Record that members were removed; their partitions have no owner from `since_ms` on."""
        for member_id in member_ids:
            self._ownership.removed(member_id, since_ms)
            self._forget(member_id)
            if timed_out and self._trace is not None:
                self._trace.timed_out(member_id)

    def ended(self, now: Now) -> list[RebalanceCompleted]:
        """End the current rebalance as overtaken, because the group is converted; return it."""
        return self._end(RebalanceOutcome.OVERTAKEN, now)

    def _forget(self, member_id: str) -> None:
        self._members.discard(member_id)
        self._behind.discard(member_id)
        self._revoking_since_ms.pop(member_id, None)

    def maybe_empty(self, now: Now) -> list[RebalanceCompleted]:
        """End and return the rebalance if no member is left."""
        if self._members:
            return []
        self._ownership.clear()
        return self._end(RebalanceOutcome.EMPTY, now)

    def _maybe_end(self, now: Now) -> list[RebalanceCompleted]:
        is_over = self._is_assigned and not self._behind
        return self._end(RebalanceOutcome.STABLE, now) if is_over else []

    def _end(self, outcome: RebalanceOutcome, now: Now) -> list[RebalanceCompleted]:
        trace, self._trace = self._trace, None
        if trace is None:
            return []
        completed = trace.completed(
            self._group_id,
            self._epoch,
            outcome,
            now.ms,
            protocol=(PROTOCOL_TYPE, self._assignor),
            members=len(self._members),
            ownership=self._ownership,
            group_type="consumer",
        )
        clients = self._ownership.clients
        self._ownership.clients = {each: name for each, name in clients.items() if each in self._members}
        return [completed]


def cause_of(update: MemberUpdate, reason: str) -> Cause:
    """Return why a member's request changed the group's epoch, with the client's `reason`."""
    member_id = update.after.member_id
    if update.replaced is not None:
        kind, text = CauseKind.FENCED, f"static member {update.replaced} was replaced by {member_id}"
    elif update.is_new:
        kind, text = CauseKind.JOINED, f"{member_id} joined"
    elif update.has_changed:
        kind, text = CauseKind.REJOINED, f"{member_id} changed its subscription"
    else:
        kind, text = CauseKind.METADATA_CHANGED, "topics or partitions changed"
    return Cause(kind=kind, text=f"{text} ({reason})" if reason else text, members=(member_id,))


def _named(assignment: Assignment, image: ClusterImage) -> frozenset[TopicPartition]:
    """Return the partitions with topic names, without those of deleted topics."""
    return frozenset(
        TopicPartition(topic.name, number)
        for topic_id, numbers in assignment.items()
        if (topic := image.topic_by_id(topic_id)) is not None
        for number in numbers
    )
