"""`odradek groups remove-members`: remove members of a group, such as static ones that are gone (KIP-345)."""

from collections.abc import Sequence

import click

from odradek.cli.common import cluster_options, say, with_admin
from odradek.cli.groups.options import group_option, report
from odradek.clients import Admin
from odradek.clients.admin.results import RefusedMembersError
from odradek.model import KafkaError


@click.command(name="remove-members")
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
