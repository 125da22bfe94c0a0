"""The rebalance of a classic group: all members join, the next generation is recorded, the leader assigns.

```
prepare ─▶ joins ─▶ record: generation + 1 ─▶ replies to joins ─▶ leader syncs, record: assignment ─▶ replies to syncs
             ▲                                         │
             └────────────── members change ───────────┘
```
Kafka records a generation only with its assignment. Here it is also recorded before the first JoinGroup response is
sent, so that no two coordinators announce the same generation.
"""

from typing import Final

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.classic.classic_group import (
    JOIN_PHASE,
    PENDING_MEMBERS,
    SYNC_PHASE,
    ClassicGroup,
    Event,
    State,
)
from odradek.broker.groups.machine.messages import PendingMembersOverdue, RebalanceStarted
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, RebalanceOutcome, RebalanceTrace
from odradek.broker.groups.machine.records import GroupMetadataRecord, ResultBuilder
from odradek.model import ErrorCode
from odradek.model.probes import probe

PENDING_MEMBERS_TIMEOUT_MS: Final = 3_000
"""How long a rebalance waits for pending members. A client joins with its new id after one round trip or never; other
members notice the rebalance only with their heartbeats, by default every 3 s."""
_LAST_GENERATION: Final = 2**31 - 1
"""Generations have 32 bits; negative ones stand for commits from outside the group."""
_LEAST_EXTENSION_MS: Final = 1_000
"""The shortest extension of a join phase: the rebalance timeout of static members may be zero."""


def prepare_rebalance(group: ClassicGroup, cause: Cause, now: Now, out: ResultBuilder) -> None:
    """Start a rebalance: all members must join again. Waiting SyncGroup requests get REBALANCE_IN_PROGRESS."""
    for member in group.members:
        if member.awaiting_sync is not None:
            group.fail_sync(member, ErrorCode.rebalance_in_progress, out)
            group.reschedule_heartbeat(member, now.ms)
    group.pending_syncs.clear()
    group.clear_deadline(SYNC_PHASE)
    group.end_trace(RebalanceOutcome.OVERTAKEN, now.ms, out)
    out.events.append(RebalanceStarted(group_id=group.group_id, generation=group.generation, reason=cause.text))
    if group.settings.traces_rebalances:
        if group.ownership is None:
            group.trace_owners()
        waiting = [member.member_id for member in group.members if member.awaiting_join is not None]
        group.trace = RebalanceTrace(cause, now, waiting)
    first = group.state is State.EMPTY
    group.transition(Event.FIRST_MEMBER_JOINED if first else Event.MEMBERS_CHANGED)
    delay_ms = group.settings.initial_rebalance_delay_ms
    if first and delay_ms > 0:
        group.remaining_initial_delay_ms = max(group.members.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.set_deadline(JOIN_PHASE, now.ms + delay_ms)
    elif first:
        complete_join_phase(group, now, out)
    else:
        group.set_deadline(JOIN_PHASE, now.ms + group.members.rebalance_timeout_ms)
        maybe_complete_join_phase(group, now, out)


def members_changed(group: ClassicGroup, cause: Cause, now: Now, out: ResultBuilder) -> None:
    """Start a rebalance; if one is already in its join phase, complete that phase if all members have joined."""
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE) or (group.state is State.EMPTY and group.members):
        prepare_rebalance(group, cause, now, out)
    else:
        maybe_complete_join_phase(group, now, out)


def maybe_complete_join_phase(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Complete the join phase if all members have joined and the initial delay is over, or no member is left.

    If only pending members are missing, wait `PENDING_MEMBERS_TIMEOUT_MS` for them.
    """
    if group.state is not State.PREPARING_REBALANCE:
        return
    members = group.members
    if members.num_awaiting_join < len(members) or (group.remaining_initial_delay_ms is not None and members):
        return
    if not any(group.pending_members.values()):
        complete_join_phase(group, now, out)
    elif not group.has_deadline(PENDING_MEMBERS):
        group.set_deadline(PENDING_MEMBERS, now.ms + PENDING_MEMBERS_TIMEOUT_MS)


def expire_pending_members(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Complete the join phase without the pending members; one that joins later starts another rebalance."""
    probe("groups: pending members are overdue")
    overdue = tuple(member_id for member_id, is_awaited in group.pending_members.items() if is_awaited)
    out.events.append(PendingMembersOverdue(group_id=group.group_id, member_ids=overdue))
    for member_id in overdue:
        group.waited_until(member_id, now.ms)
    group.pending_members = dict.fromkeys(group.pending_members, False)
    complete_join_phase(group, now, out)


def expire_join_phase(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Complete the join phase at its deadline; extend the initial delay if a member joined during it."""
    if group.state is not State.PREPARING_REBALANCE:
        return
    if group.new_member_added and group.remaining_initial_delay_ms:
        probe("groups: the initial rebalance delay is extended")
        delay_ms = min(group.settings.initial_rebalance_delay_ms, group.remaining_initial_delay_ms)
        group.remaining_initial_delay_ms -= delay_ms
        group.new_member_added = False
        group.set_deadline(JOIN_PHASE, now.ms + delay_ms)
    else:
        complete_join_phase(group, now, out)


def complete_join_phase(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Remove dynamic members that did not join, record the next generation, and answer the waiting joins.

    Static members stay. If none of the remaining members has joined, the join phase is extended; if no member
    remains, the group becomes empty.
    """
    group.clear_deadline(JOIN_PHASE)
    group.clear_deadline(PENDING_MEMBERS)
    members = group.members
    for member in members:
        if member.awaiting_join is None and member.instance_id is not None:
            group.waited_until(member.member_id, now.ms)
        elif member.awaiting_join is None:
            probe("groups: a member misses the join phase and is removed")
            group.remove_member(member.member_id, now.ms)
            if group.trace is not None:
                group.trace.timed_out(member.member_id)
    if members and not members.maybe_elect_new_joined_leader():
        probe("groups: no remaining member has joined and the join phase is extended")
        group.set_deadline(JOIN_PHASE, now.ms + max(members.rebalance_timeout_ms, _LEAST_EXTENSION_MS))
        return
    group.remaining_initial_delay_ms = None
    generation = group.generation + 1 if group.generation < _LAST_GENERATION else 1
    if not members:
        group.transition(Event.LAST_MEMBER_LEFT)
        _record(group, generation, None, now, out)
        group.end_trace(RebalanceOutcome.EMPTY, now.ms, out, generation)
        if group.ownership is not None:
            group.ownership.clear()
        return
    if group.trace is not None:
        group.trace.join_phase_completed(now.ms)
    group.transition(Event.JOIN_PHASE_COMPLETE)
    protocol_name = members.select_protocol()
    _record(group, generation, protocol_name, now, out)
    for member in members:
        member.former_epoch = None
        waiting = members.remove_awaiting_join(member)
        if waiting is not None:
            member.is_new = False
            out.reply(waiting.to, group.join_reply(member, generation, protocol_name))
            group.pending_syncs[member.member_id] = None
            group.reschedule_heartbeat(member, now.ms)
    group.set_deadline(SYNC_PHASE, now.ms + members.rebalance_timeout_ms)


def _record(group: ClassicGroup, generation: int, protocol_name: str | None, now: Now, out: ResultBuilder) -> None:
    value = group.new_record(generation, protocol_name, {}, now.wall_ms)
    out.records.append(GroupMetadataRecord(group.group_id, value))


def expire_sync_phase(group: ClassicGroup, now: Now, out: ResultBuilder) -> None:
    """Remove the members that joined but sent no SyncGroup within the rebalance timeout."""
    silent = sorted(group.pending_syncs)
    for member_id in silent:
        group.remove_member(member_id, now.ms)
    if silent:
        text = f"no SyncGroup from {', '.join(silent)}"
        members_changed(group, Cause(kind=CauseKind.REBALANCE_TIMEOUT, text=text, members=tuple(silent)), now, out)
