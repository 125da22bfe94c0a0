"""`odradek groups waiting`: the members of a group that wait for others, and until when."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

import click

from odradek.cli.common import admin, cluster_options, print_json, print_table, run, table_options
from odradek.cli.groups.options import group_option
from odradek.cli.groups.views import assignment_text
from odradek.clients.admin.group_waits import GroupWaits, MemberWaits, PartitionWait
from odradek.model import TopicPartition
from odradek.runtime import system_runtime

_COLUMNS: Final = ("CONSUMER-ID", "EPOCH", "#PARTITIONS", "STEP", "PARTITIONS", "HELD-BY", "SINCE", "TIMES-OUT")
_STATES: Final = {
    "PreparingRebalance": "waits until all members have joined again; the coordinator does not say which have",
    "CompletingRebalance": "waits until its leading member has assigned the partitions",
}


@click.command()
@group_option
@click.option("--interval", "-i", type=click.FloatRange(min=0.1), metavar="S", help="Show it again every S seconds.")
@click.option("--count", "-c", type=click.IntRange(min=1), help="With --interval: exit after this number of views.")
@table_options
@cluster_options
def waiting(*, group: str, interval: float | None, count: int | None, as_json: bool) -> None:
    """Show which members of a group wait for whom: epochs, what they have to revoke, and what they wait for.

    SINCE is how many seconds ago the coordinator requested the holder of the partitions to revoke them, and TIMES-OUT
    after how many it removes the holder, by the clock of this machine. Both need permission to read __consumer_offsets.
    """
    if count is not None and interval is None:
        raise click.UsageError("--count needs --interval")
    views = 1 if interval is None else count

    async def work() -> None:
        number, clock = 0, system_runtime().clock
        async with admin() as cluster:
            while True:
                _show(await cluster.group_waits(group), as_json=as_json, now_ms=clock.now_ms())
                number += 1
                if number == views:
                    return
                await asyncio.sleep(interval or 0.0)
                if not as_json:
                    click.echo()

    run(work())


def _show(group: GroupWaits, *, as_json: bool, now_ms: int) -> None:
    if as_json:
        print_json(group)
        return
    if group.unreadable:
        click.echo(f"odradek: times, and what members were told to revoke, are unknown: {group.unreadable}", err=True)
    click.echo(headline(group))
    if group.members:
        print_table(_COLUMNS, [row for member in group.members for row in rows(group, member, now_ms)])


def headline(group: GroupWaits) -> str:
    """Return one or two lines about the group as a whole."""
    epoch = "-" if group.epoch is None else group.epoch
    if group.group_type == "classic":
        text = f"group {group.group_id}  state {group.group_state}  generation {epoch}  members {len(group.members)}"
        return "\n".join([text, f"the group {_STATES[group.group_state]}"] if group.group_state in _STATES else [text])
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
        since, until = _seconds(since_ms, lambda at: now_ms - at), _seconds(until_ms, lambda at: at - now_ms)
        yield (*head, shown, partitions, holder, since, until)
    if not found:
        is_behind = group.assignment_epoch is not None and member.epoch != group.assignment_epoch
        yield (*head, "next heartbeat" if is_behind else None, None, None, None, None)


def _place(wait: PartitionWait) -> tuple[str | None, int | None, int | None]:
    return wait.held_by, wait.since_ms, wait.times_out_ms


def _order(wait: PartitionWait) -> tuple[str, int, int, TopicPartition]:
    return wait.held_by or "", wait.since_ms or 0, wait.times_out_ms or 0, wait.partition


def _seconds(at_ms: int | None, elapsed_ms: Callable[[int], int]) -> str | None:
    return None if at_ms is None else f"{max(elapsed_ms(at_ms), 0) / 1000:.1f}"
