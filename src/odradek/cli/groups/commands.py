"""`odradek groups`: its commands but `watch`, `reset`, `tree` and `migrate`."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import COUNT
from odradek.cli.common import cluster_options, print_json, print_listing, print_table, say, table_options, with_admin
from odradek.cli.groups.options import GroupSelection, group_option, groups_options, report
from odradek.cli.groups.reset import reset
from odradek.cli.groups.tree import migrate, tree
from odradek.cli.groups.views import (
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    STATE_COLUMNS,
    described,
    member_rows,
    offset_rows,
    state_row,
)
from odradek.cli.groups.watch import watch
from odradek.cli.partition_lists import TOPICS, partitions_of_topics, topic_and_partitions
from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription
from odradek.clients.admin.group_waits import GroupWaits
from odradek.clients.admin.results import RefusedGroupsError, RefusedMembersError
from odradek.model import KafkaError, OdradekError
from odradek.model.names import TopicPartition, first_names
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE
from odradek.runtime import system_runtime
from odradek.texts.group_texts import departures, headlines, rows, slowest, waited_for

_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Assigning", "Reconciling")
_RECENT_MS: Final = 600_000
"""How old the departures of members are at most that `describe` shows."""
_MOST_RECENT: Final = 10_000
_TYPES = ("classic", "consumer", "share", "streams")


@click.group(name="groups", cls=CommandGroup)
def command() -> None:
    """List, describe, watch and delete groups, and reset their offsets."""


command.add_command(reset)
command.add_command(watch)
command.add_command(tree)
command.add_command(migrate)


@command.command(name="list")
@click.option("--state", "states", multiple=True, metavar="STATE[,…]", help="Stable, Empty, …; may be repeated.")
@click.option("--type", "types", multiple=True, metavar="TYPE[,…]", help="classic, consumer, …; may be repeated.")
@table_options
@cluster_options
def list_groups(*, states: Sequence[str], types: Sequence[str], as_json: bool) -> None:
    """List the groups; `odradek groups tree` lists those of generation 1, whose consumers use ZooKeeper."""
    wanted_states, wanted_types = _words("state", states, _STATES), _words("type", types, _TYPES)

    groups = with_admin(lambda client: client.list_groups(states=wanted_states, types=wanted_types))
    if not (groups or states or types or as_json):
        click.echo("there are no groups; `odradek groups tree` lists those of generation 1", err=True)
    print_listing(
        groups,
        ("GROUP", "TYPE", "STATE", "PROTOCOL"),
        lambda each: (each.group_id, each.group_type or None, each.group_state or None, each.protocol_type or None),
        as_json=as_json,
    )


def _words(option: str, texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """Split comma-separated words, in upper or lower case. Raises `click.BadParameter` for one that is not `known`."""
    by_lower = {word.lower(): word for word in known}
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        if word.lower() not in by_lower:
            raise click.BadParameter(f"{word!r} is none of {', '.join(known)}", param_hint=f"--{option}")
    return [by_lower[word.lower()] for word in words]


@command.command()
@groups_options
@click.option("--offsets", "view", flag_value="offsets", help="Only offsets, as `groups offsets` shows them.")
@click.option("--members", "view", flag_value="members", help="Only members, as `groups members` shows them.")
@click.option("--state", "view", flag_value="state", help="Only states, coordinators and assignors.")
@click.option("--verbose", is_flag=True, help="With --members: the partitions of each member.")
@table_options
@cluster_options
@click.pass_context
def describe(ctx: click.Context, *, selection: GroupSelection, view: str | None, verbose: bool, as_json: bool) -> None:
    """Show a group's members, and the committed offset, end offset and lag of each partition."""
    groups, errors = _descriptions(selection)
    if view == "offsets":
        _print_offsets(groups, as_json=as_json)
    elif view == "members":
        _print_members(groups, verbose=verbose, as_json=as_json)
    elif as_json:
        for group in groups:
            print_json(described(group))
    elif view == "state":
        _print_table(STATE_COLUMNS, [state_row(each) for each in groups])
    else:
        partitions, recent = with_admin(lambda client: _surroundings(client, groups))
        for group in groups:
            _print_group(group, partitions)
            for line in departures(each for each in recent if each["group"] == group.group_id):
                say(line)
    report(ctx, errors)


@command.command()
@groups_options
@click.option("--verbose", is_flag=True, help="Also the partitions of each member.")
@table_options
@cluster_options
@click.pass_context
def members(ctx: click.Context, *, selection: GroupSelection, verbose: bool, as_json: bool) -> None:
    """Show the members of groups."""
    groups, errors = _descriptions(selection)
    _print_members(groups, verbose=verbose, as_json=as_json)
    report(ctx, errors)


@command.command()
@groups_options
@table_options
@cluster_options
@click.pass_context
def offsets(ctx: click.Context, *, selection: GroupSelection, as_json: bool) -> None:
    """Show the committed offset, end offset and lag of each partition of groups."""
    groups, errors = _descriptions(selection)
    _print_offsets(groups, as_json=as_json)
    report(ctx, errors)


@command.command()
@groups_options
@cluster_options
@click.pass_context
def delete(ctx: click.Context, *, selection: GroupSelection) -> None:
    """Delete groups without members, and their offsets."""

    async def work(client: Admin) -> tuple[list[str], dict[str, KafkaError]]:
        group_ids = await selection.group_ids(client)
        try:
            await client.delete_groups(group_ids)
        except RefusedGroupsError as error:
            return [each for each in group_ids if each not in error.errors], error.errors
        return group_ids, {}

    deleted, errors = with_admin(work)
    for group_id in deleted:
        say(f"group {group_id} deleted")
    report(ctx, errors)


@command.command(name="offsets-delete")
@group_option
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    required=True,
    type=TOPICS,
    help="Partitions of a topic, all without numbers; may be repeated.",
)
@cluster_options
def delete_offsets(*, group: str, topics: Sequence[str]) -> None:
    """Delete committed offsets of a group, in topics that no member subscribes to."""
    named = dict(map(topic_and_partitions, topics))

    async def work(client: Admin) -> None:
        await client.delete_group_offsets(group, await partitions_of_topics(client, topics))

    with_admin(work)
    say(f"deleted the offsets of group {group} for {', '.join(named)}")


_HISTORY_COLUMNS = (
    "TIME", "GENERATION", "MEMBERS", "DURATION", "MOVED", "UNOWNED", "LONGEST", "WAITED FOR", "REVOCATION", "CAUSE",
)  # fmt: skip


@command.command()
@group_option
@click.option("--limit", default=20, show_default=True, metavar="N", type=COUNT, help="Show the last N.")
@table_options
@cluster_options
def history(*, group: str, limit: int, as_json: bool) -> None:
    """Show the causes of a group's rebalances, what they waited for, and the time without an owner.

    DURATION is the time from the cause until the last member had its assignment. UNOWNED is the time without an owner,
    summed over all partitions, LONGEST the longest of a single partition; --json has each. In a group of the consumer
    protocol, GENERATION is the epoch, and REVOCATION the member that took longest to give partitions up. TIME is
    in this machine's time zone, durations are in seconds.
    """
    rebalances = with_admin(lambda cluster: cluster.rebalance_history(group, limit=limit))
    if not rebalances and not as_json:
        raise OdradekError(
            f"__rebalances has no rebalance of the group {group}: it had none, or the brokers have "
            "group.rebalance.journal.enable=false"
        )
    print_listing(rebalances, _HISTORY_COLUMNS, _history_row, as_json=as_json)


def _history_row(rebalance: dict[str, Any]) -> tuple[object, ...]:
    outcome = rebalance["outcome"]
    return (
        datetime.fromtimestamp(rebalance["started_ms"] / 1000).isoformat(" ", "milliseconds"),
        rebalance["generation"],
        rebalance["members"],
        _seconds(rebalance["duration_ms"]),
        rebalance["moved"],
        _seconds(rebalance["unowned_partition_ms"]),
        _seconds(rebalance["longest_unowned_ms"]),
        waited_for(rebalance),
        slowest(rebalance.get("revocations", {})),
        rebalance["reason"] + ("" if outcome == "stable" else f" ({outcome})"),
    )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f}"


@command.command(name="remove-members")
@group_option
@click.option("--member", "-m", "members", multiple=True, metavar="ID", help="A member id; may be repeated.")
@click.option(
    "--instance", "-i", "instances", multiple=True, metavar="ID", help="The group.instance.id of a static member."
)
@click.option("--all", "is_all", is_flag=True, help="All members.")
@cluster_options
@click.pass_context
def remove_members(
    ctx: click.Context, *, group: str, members: Sequence[str], instances: Sequence[str], is_all: bool
) -> None:
    """Remove members of a group; a member that still runs joins again."""
    if bool(members or instances) == is_all:
        raise click.UsageError("name members with --member or --instance, or give --all")

    async def work(client: Admin) -> tuple[list[str], dict[str, KafkaError]]:
        by_id, by_instance = list(members), list(instances)
        if is_all:
            for each in (await client.describe_group(group)).members:
                if each.group_instance_id is None:
                    by_id.append(each.member_id)
                else:
                    by_instance.append(each.group_instance_id)
        wanted = [*by_id, *by_instance]
        try:
            await client.remove_group_members(group, member_ids=by_id, group_instance_ids=by_instance)
        except RefusedMembersError as error:
            return [each for each in wanted if each not in error.errors], error.errors
        return wanted, {}

    removed, errors = with_admin(work)
    for each in removed:
        say(f"member {each} removed from group {group}")
    report(ctx, errors)


_COLUMNS: Final = ("CONSUMER-ID", "EPOCH", "#PARTITIONS", "STEP", "PARTITIONS", "HELD-BY", "SINCE", "TIMES-OUT")


@command.command()
@group_option
@click.option("--interval", "-i", type=click.FloatRange(min=0.1), metavar="S", help="Show it again every S seconds.")
@click.option("--count", "-c", type=COUNT, help="With --interval: exit after this number of views.")
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

    async def work(cluster: Admin) -> None:
        number, clock = 0, system_runtime().clock
        while True:
            _show(await cluster.group_waits(group), as_json=as_json, now_ms=clock.now_ms())
            number += 1
            if number == views:
                return
            await asyncio.sleep(interval or 0.0)
            if not as_json:
                click.echo()

    with_admin(work)


def _show(group: GroupWaits, *, as_json: bool, now_ms: int) -> None:
    if as_json:
        print_json(group)
        return
    if group.unreadable:
        say(f"odradek: times, and what members were told to revoke, are unknown: {group.unreadable}", is_remark=True)
    for line in headlines(group):
        say(line)
    if group.members:
        print_table(_COLUMNS, [row for member in group.members for row in rows(group, member, now_ms)])


# ---- output ---------------------------------------------------------------------------------------------------------


def _descriptions(selection: GroupSelection) -> tuple[list[GroupDescription], dict[str, KafkaError]]:
    async def work(client: Admin) -> dict[str, GroupDescription | KafkaError]:
        return await client.describe_groups(await selection.group_ids(client))

    found = with_admin(work)
    groups = [each for each in found.values() if isinstance(each, GroupDescription)]
    return groups, {group_id: each for group_id, each in found.items() if isinstance(each, KafkaError)}


async def _surroundings(
    client: Admin, groups: Sequence[GroupDescription]
) -> tuple[set[TopicPartition], list[dict[str, Any]]]:
    """Return the partitions of the groups' topics, and the last rebalances; nothing of what cannot be read."""
    partitions: set[TopicPartition] = set()
    for topic in sorted({each.topic for group in groups for each in group.partitions}):
        with contextlib.suppress(OdradekError):
            found = (await client.describe_topics([topic]))[topic]
            partitions |= {TopicPartition(topic, number) for number in found.partitions}
    with contextlib.suppress(OdradekError):
        since_ms = system_runtime().clock.now_ms() - _RECENT_MS
        return partitions, await client.rebalance_history(None, limit=_MOST_RECENT, since_ms=since_ms)
    return partitions, []


def _print_group(group: GroupDescription, partitions: Iterable[TopicPartition]) -> None:
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        # Groups of other protocol types, such as Connect's workers, do not assign partitions.
        say(
            f"group {group.group_id}  state {group.group_state or '-'}  protocol type {group.protocol_type}  "
            f"protocol {group.protocol or '-'}  members {len(group.members)}"
        )
        _print_table(OFFSET_COLUMNS, offset_rows(group))
        return
    say(
        f"group {group.group_id}  state {group.group_state or '-'}  assignor {group.protocol or '-'}  "
        f"members {len(group.members)}  lag {'-' if group.lag is None else group.lag}"
    )
    _print_table(OFFSET_COLUMNS, offset_rows(group))
    committed = {(each.topic, each.partition) for each in group.partitions if each.committed_offset is not None}
    topics = {each.topic for each in group.partitions}
    if unread := sorted(each for each in partitions if each.topic in topics and each not in committed):
        say(f"not in the lag, without a committed offset: {len(unread)} partitions ({first_names(unread, 10)})")
    idle = [member.member_id for member in group.members if not member.assignment]
    if idle:
        say(f"members without a partition: {', '.join(idle)}")


def _print_offsets(groups: Sequence[GroupDescription], *, as_json: bool) -> None:
    if not as_json:
        for group in groups:
            if not group.partitions:
                say(f"group {group.group_id} has no partitions and no committed offsets", is_remark=True)
        _print_table(OFFSET_COLUMNS, [row for group in groups for row in offset_rows(group)])
        return
    for group in groups:
        for each in described(group)["partitions"]:
            print_json({"group_id": group.group_id, **each})


def _print_members(groups: Sequence[GroupDescription], *, verbose: bool, as_json: bool) -> None:
    if as_json:
        for group in groups:
            for member in described(group)["members"]:
                print_json({"group_id": group.group_id, **member})
        return
    for group in groups:
        if not group.members:
            say(f"group {group.group_id} has no members", is_remark=True)
    columns = (*MEMBER_COLUMNS, "ASSIGNMENT") if verbose else MEMBER_COLUMNS
    _print_table(columns, [row for group in groups for row in member_rows(group, verbose=verbose)])


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table if it has rows; the caller has explained on stderr why there are none."""
    if rows:
        print_table(columns, rows)
