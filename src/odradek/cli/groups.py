"""`odradek groups`: list, describe and delete consumer groups, and delete their offsets."""

from collections.abc import Sequence

import click

from odradek.cli.common import admin, cluster_options, json_option, print_json, print_table, run
from odradek.cli.group_history import history
from odradek.clients.descriptions import GroupDescription, GroupListing
from odradek.model import TopicPartition


@click.group(name="groups")
def command() -> None:
    """List, describe and delete consumer groups."""


command.add_command(history)


@command.command(name="list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable, Empty, …; may be repeated.")
@json_option
@cluster_options
def list_groups(
    *, states: Sequence[str], as_json: bool, bootstrap_server: str | None, command_config: str | None
) -> None:
    """List the groups."""

    async def work() -> list[GroupListing]:
        async with admin(bootstrap_server, command_config) as cluster:
            return await cluster.list_groups(states=states)

    groups = run(work())
    if as_json:
        for group in groups:
            print_json(group)
        return
    rows = [(group.group_id, group.group_state or None, group.protocol_type or None) for group in groups]
    print_table(("GROUP", "STATE", "PROTOCOL"), rows)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@cluster_options
def describe(*, names: Sequence[str], as_json: bool, bootstrap_server: str | None, command_config: str | None) -> None:
    """Show a group's members, and the committed offset, end offset and lag of each partition."""

    async def work() -> list[GroupDescription]:
        async with admin(bootstrap_server, command_config) as cluster:
            return [await cluster.describe_group(name) for name in names]

    for group in run(work()):
        if as_json:
            print_json(_described(group))
        else:
            _print_group(group)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_options
def delete(*, names: Sequence[str], bootstrap_server: str | None, command_config: str | None) -> None:
    """Delete groups without members, and their offsets."""

    async def work() -> None:
        async with admin(bootstrap_server, command_config) as cluster:
            for name in names:
                await cluster.delete_groups([name])
                click.echo(f"group {name} deleted")

    run(work())


@command.command(name="offsets-delete")
@click.argument("name")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:N,…]",
    help="Partitions of a topic, all without numbers; may be repeated.",
)
@cluster_options
def delete_offsets(
    *, name: str, topics: Sequence[str], bootstrap_server: str | None, command_config: str | None
) -> None:
    """Delete committed offsets of the group NAME, in topics that it no longer reads."""
    wanted = dict(map(_topic_and_partitions, topics))

    async def work() -> None:
        async with admin(bootstrap_server, command_config) as cluster:
            known = await cluster.describe_topics(wanted)
            partitions = [
                TopicPartition(topic, number)
                for topic, numbers in wanted.items()
                for number in (known[topic].partitions if numbers is None else numbers)
            ]
            await cluster.delete_group_offsets(name, partitions)
        click.echo(f"deleted the offsets of group {name} for {', '.join(wanted)}")

    run(work())


def _topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:N,N,…")
    return topic, [int(part) for part in parts]


def _described(group: GroupDescription) -> dict[str, object]:
    return {
        "group_id": group.group_id,
        "group_state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "lag": group.lag,
        "members": group.members,
        "partitions": group.partitions,
    }


def _print_group(group: GroupDescription) -> None:
    click.echo(
        f"group {group.group_id}  state {group.group_state or '-'}  assignor {group.protocol or '-'}  "
        f"members {len(group.members)}  lag {group.lag}"
    )
    rows = [
        (each.topic, each.partition, each.committed_offset, each.end_offset, each.lag, each.member_id, each.client_host)
        for each in group.partitions
    ]
    print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"), rows)
    idle = [member.member_id for member in group.members if not member.assignment]
    if idle:
        click.echo(f"members without a partition: {', '.join(idle)}")
