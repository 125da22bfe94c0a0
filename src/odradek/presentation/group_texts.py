"""Texts about groups: what members hold and wait for, and what a rebalance has cost."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from odradek.clients.admin.descriptions import GroupDescription, MemberDescription
from odradek.clients.admin.group_waits import GroupWaits, MemberWaits, PartitionWait
from odradek.model import TopicPartition

WAITING_STATES: Final = {
    "PreparingRebalance": "waits until all members have joined again; the coordinator does not say which have",
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
    return None if broker is None else f"{broker.host}:{broker.port} ({broker.broker_id})"


def headline(group: GroupWaits) -> str:
    """Return one or two lines about the group as a whole."""
    epoch = "-" if group.epoch is None else group.epoch
    if group.group_type == "classic":
        text = f"group {group.group_id}  state {group.group_state}  generation {epoch}  members {len(group.members)}"
        return "\n".join(
            [text, f"the group {WAITING_STATES[group.group_state]}"] if group.group_state in WAITING_STATES else [text]
        )
    behind = sum(member.epoch != group.assignment_epoch for member in group.members)
    revoking = sum(bool(member.revokes) for member in group.members)
    waiting_members = sum(bool(member.waits_for) for member in group.members)
    text = (
        f"group {group.group_id}  state {group.group_state}  epoch {epoch}  target epoch {group.assignment_epoch}  "
        f"members {len(group.members)}: {behind} behind, {revoking} to revoke, {waiting_members} waiting"
    )
    is_due = group.epoch is not None and group.assignment_epoch is not None and group.epoch > group.assignment_epoch
    return f"{text}\nthe targets of epoch {epoch} are not computed yet" if is_due else text


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

    Of a classic group, they are those that had partitions before, as the coordinator does not say which have joined.
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
    had = [each for each in group.members if each.assignment]
    return [*([f"Check whether these poll, which had partitions before: {_named(had)}."] if had else []), text]


def _named(members: Sequence[MemberDescription]) -> str:
    more = f" and {len(members) - _MOST_NAMED:,} more" if len(members) > _MOST_NAMED else ""
    return ", ".join(f"{each.member_id} on {each.client_host.lstrip('/')}" for each in members[:_MOST_NAMED]) + more


def waited_for(rebalance: Mapping[str, Any]) -> str | None:
    """Return the member that joined last, or those that were removed because they did not join in time."""
    if rebalance["timed_out"]:
        return f"{', '.join(rebalance['timed_out'])} (timed out)"
    return slowest(rebalance["waited_for"])


def slowest(waited_ms: Mapping[str, int]) -> str | None:
    """Return the first member, which took longest, with its seconds."""
    return next((f"{member} {each / 1000:.3f}" for member, each in waited_ms.items()), None)


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
