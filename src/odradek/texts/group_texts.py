"""Texts about groups: what members hold and wait for, and what a rebalance has cost."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from odradek.clients.admin.descriptions import GroupDescription, MemberDescription
from odradek.clients.admin.group_waits import GroupWaits, MemberWaits, PartitionWait
from odradek.model import TopicPartition

WAITING_STATES: Final = {
    "PreparingRebalance": "waits until all members have joined again",
    "CompletingRebalance": "waits until its leading member has assigned the partitions",
}
_MOST_NAMED: Final = 5


def assignment_text(partitions: Iterable[tuple[str, int]]) -> str | None:
    """Return partitions as `a(0,1), b(0)`; None without partitions."""
    topics = groupby(sorted(partitions), key=lambda partition: partition[0])
    return ", ".join(f"{topic}({','.join(str(number) for _, number in some)})" for topic, some in topics) or None


def coordinator_text(group: GroupDescription) -> str | None:
    """Return a group's coordinator as `host:port (id)`."""
    broker = group.coordinator
    return None if broker is None else f"{broker.address} ({broker.broker_id})"


def headlines(group: GroupWaits) -> list[str]:
    """Return one or two lines about the group as a whole."""
    epoch = "-" if group.epoch is None else group.epoch
    if group.group_type == "classic":
        text = f"group {group.group_id}  state {group.group_state}  generation {epoch}  members {len(group.members)}"
        waiting = WAITING_STATES.get(group.group_state)
        return [text] if waiting is None else [text, f"the group {waiting}"]
    behind = sum(member.epoch != group.assignment_epoch for member in group.members)
    revoking = sum(bool(member.revokes) for member in group.members)
    waiting_members = sum(bool(member.waits_for) for member in group.members)
    text = (
        f"group {group.group_id}  state {group.group_state}  epoch {epoch}  target epoch {group.assignment_epoch}  "
        f"members {len(group.members)}: {behind} behind, {revoking} to revoke, {waiting_members} waiting"
    )
    is_due = group.epoch is not None and group.assignment_epoch is not None and group.epoch > group.assignment_epoch
    return [text, f"the targets of epoch {epoch} are not computed yet"] if is_due else [text]


def rows(group: GroupWaits, member: MemberWaits, now_ms: int) -> Iterator[tuple[object, ...]]:
    """Yield a row for each holder of partitions that a member revokes or waits for; one row if there is none."""
    head = member.member_id, member.epoch, len(member.assigned)
    steps = [("revokes", member.revokes), ("waits for", member.waits_for)]
    found = [
        (step, holder, since_ms, until_ms, list(some))
        for step, waits in steps
        for (holder, since_ms, until_ms), some in groupby(sorted(waits, key=_order), key=_place)
    ]
    for step, holder, since_ms, until_ms, some in found:
        partitions = assignment_text(each.partition for each in some)
        shown = "gets" if step == "waits for" and holder is None else step
        since, until = _elapsed(since_ms, lambda at: now_ms - at), _elapsed(until_ms, lambda at: at - now_ms)
        yield (*head, shown, partitions, holder, since, until)
    if not found:
        is_behind = group.assignment_epoch is not None and member.epoch != group.assignment_epoch
        yield (*head, "next heartbeat" if is_behind else None, None, None, None, None)


def _place(wait: PartitionWait) -> tuple[str | None, int | None, int | None]:
    return wait.held_by, wait.since_ms, wait.times_out_ms


def _order(wait: PartitionWait) -> tuple[str, int, int, TopicPartition]:
    return wait.held_by or "", wait.since_ms or 0, wait.times_out_ms or 0, wait.partition


def _elapsed(at_ms: int | None, elapsed_ms: Callable[[int], int]) -> str | None:
    return None if at_ms is None else f"{max(elapsed_ms(at_ms), 0) / 1000:.1f}"


def suspects(group: GroupDescription) -> list[str]:
    """Return sentences on the members that may delay a rebalance.

    Of a classic group, they are those that have not joined again or, if the coordinator does not say which have, as
    Apache Kafka's, those that had partitions before.
    """
    if group.assignment_epoch is not None:
        behind = [each for each in group.members if each.epoch != group.assignment_epoch]
        return [f"Not at epoch {group.assignment_epoch} yet: {_named(behind)}."] if behind else []
    if group.group_state != "PreparingRebalance":
        return []
    text = (
        "A member joins again at its next poll. One that does not poll delays the others, until the group removes "
        "it after its max.poll.interval.ms, by default 5 minutes."
    )
    missing = [each for each in group.members if not each.topics]
    if not missing and group.members:
        return ["All members have joined; the coordinator waits for others (group.initial.rebalance.delay.ms)."]
    if len(missing) < len(group.members):
        return [f"Not joined again yet: {_named(missing)}.", text]
    had = [each for each in group.members if each.assignment]
    return [*([f"Check whether these poll, which had partitions before: {_named(had)}."] if had else []), text]


def _named(members: Sequence[MemberDescription]) -> str:
    more = f" and {len(members) - _MOST_NAMED:,} more" if len(members) > _MOST_NAMED else ""
    return ", ".join(f"{each.member_id} on {each.client_host.lstrip('/')}" for each in members[:_MOST_NAMED]) + more


def waited_for(rebalance: Mapping[str, Any]) -> str | None:
    """Return what a rebalance waited for longest: members that did not join in time, the last to join, or a step."""
    if rebalance["timed_out"]:
        return f"{', '.join(rebalance['timed_out'])} (timed out)"
    waited_ms = dict(rebalance["waited_for"])
    join_ms, assign_ms = rebalance.get("join_ms"), rebalance.get("assign_ms")
    if join_ms is not None and not waited_ms:
        waited_ms["group.initial.rebalance.delay.ms"] = join_ms
    if join_ms is not None and assign_ms is not None:
        waited_ms["the leader's assignment"] = assign_ms
        waited_ms["the last SyncGroup"] = rebalance["duration_ms"] - join_ms - assign_ms
    return slowest(waited_ms)


def slowest(waited_ms: Mapping[str, int]) -> str | None:
    """Return what took longest, with its seconds; None if nothing took time."""
    slow = max(waited_ms, key=lambda each: waited_ms[each], default=None)
    return f"{slow} {waited_ms[slow] / 1000:.3f}" if slow is not None and waited_ms[slow] else None


_POLLS: Final = "poll more often (fewer max.poll.records, faster processing), or raise max.poll.interval.ms"
_CAUSES: Final = {
    "session expired": "no heartbeat within session.timeout.ms: it was killed, stopped, or cut off from the brokers",
    "poll": f"max.poll.interval.ms was exceeded: {_POLLS}",
    "clos": "its consumer was closed, as at the end or restart of a process",
    "unsubscribe": "it unsubscribed",
}
"""Likely causes by a word of what is recorded; the first that occurs counts."""
_NO_REASON: Final = (
    f"it gave no reason, so probably max.poll.interval.ms was exceeded ({_POLLS}), or its process is restarted"
)


def departure_cause(rebalance: Mapping[str, Any], member_id: str) -> str | None:
    """Return the likely cause of a member's leaving in a rebalance of the journal; None if it did not leave in it."""
    kind = rebalance["cause"] if member_id in rebalance["caused_by"] else ""
    if member_id in rebalance["timed_out"] or kind == "rebalance timeout":
        return _CAUSES["poll"]
    if kind not in {"left", "session expired"}:
        return None
    given: str = rebalance["reason"].partition(" left")[2].strip(" ()")
    text = f"{kind} {given}".lower()
    return next((cause for word, cause in _CAUSES.items() if word in text), given or _NO_REASON)


def departures(rebalances: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each client of which members left at least twice in these rebalances, with the likely cause."""
    left: dict[str, list[tuple[int, str]]] = {}
    joined = Counter[str]()
    for each in rebalances:
        for member_id, client_id in each.get("clients", {}).items():
            if (cause := departure_cause(each, member_id)) is not None:
                left.setdefault(client_id, []).append((each["started_ms"], cause))
            elif client_id in left and member_id in each["caused_by"] and each["cause"] == "joined":
                joined[client_id] += 1
    return [
        f"client {client_id} left the group {len(some)} times within {(some[-1][0] - some[0][0]) / 1000:,.0f} s and "
        f"joined it {joined[client_id]} times: {Counter(cause for _, cause in some).most_common(1)[0][0]}"
        for client_id, some in sorted(left.items(), key=lambda each: -len(each[1]))
        if len(some) > 1
    ]


def rebalance_sentence(rebalance: Mapping[str, Any]) -> str:
    """Return what caused a rebalance of the journal and what it cost, as a sentence."""
    outcome = "" if rebalance["outcome"] == "stable" else f" It ended as {rebalance['outcome']}."
    waited = waited_for(rebalance) or slowest(rebalance.get("revocations", {}))
    return (
        f"{rebalance['reason']}: the rebalance took {rebalance['duration_ms'] / 1000:.3f} s, moved "
        f"{rebalance['moved']:,} partitions, and left partitions without a reader for "
        f"{rebalance['unowned_partition_ms'] / 1000:.3f} partition-seconds in all, one of them for "
        f"{rebalance['longest_unowned_ms'] / 1000:.3f} s."
        f"{f' It waited longest for {waited} s.' if waited and not rebalance['timed_out'] else ''}"
        f"{f' These members did not join in time: {waited}.' if waited and rebalance['timed_out'] else ''}{outcome}"
    )
