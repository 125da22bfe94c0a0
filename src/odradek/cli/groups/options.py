"""Options that name groups: as arguments, or as `--group` and `--all-groups` of Kafka's tool."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from odradek.cli.cluster_names import complete_groups, group_ids, matching
from odradek.cli.common import say
from odradek.clients import Admin
from odradek.model import OdradekError


class GroupSelection(Struct, frozen=True, kw_only=True):
    """The groups that the options name."""

    names: tuple[str, ...]
    is_all: bool = False

    async def group_ids(self, client: Admin) -> list[str]:
        """Return the ids, each once, with those that match a wildcard; those of all groups for `--all-groups`."""
        if self.is_all:
            return await group_ids(client)
        return await matching("group", self.names, lambda: group_ids(client))


def groups_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add `GROUP...`, `--group` and `--all-groups`; the command gets them as `selection`. Names may have wildcards."""

    @wraps(function)
    def command(*, names: Sequence[str], groups: Sequence[str], all_groups: bool, **options: Any) -> None:
        if all_groups == bool(names or groups):
            raise click.UsageError("name groups, as arguments or with --group, or give --all-groups")
        function(selection=GroupSelection(names=(*names, *groups), is_all=all_groups), **options)

    for option in (
        click.option("--all-groups", is_flag=True, help="All groups of the cluster."),
        click.option(
            "--group",
            "-g",
            "groups",
            multiple=True,
            metavar="GROUP",
            help="A group; may be repeated.",
            shell_complete=complete_groups,
        ),
        click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_groups),
    ):
        command = option(command)
    return command


def group_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add `GROUP` and `--group`, exactly one of which is required; the command gets it as `group`."""

    @wraps(function)
    def command(*, name: str | None, group: str | None, **options: Any) -> None:
        named = name if group is None else group
        if named is None or None not in (name, group):
            raise click.UsageError("name one group, as an argument or with --group")
        function(group=named, **options)

    command = click.option(
        "--group", "-g", metavar="GROUP", help="The group, instead of the argument.", shell_complete=complete_groups
    )(command)
    return click.argument("name", required=False, metavar="[GROUP]", shell_complete=complete_groups)(command)


def report(ctx: click.Context, errors: Mapping[str, OdradekError]) -> None:
    """Print the errors of groups, a line each, and exit with 1 if there are any."""
    for error in errors.values():
        say(f"odradek: {error}", is_remark=True)
    if errors:
        ctx.exit(1)
