"""`odradek acls`: list, add, remove and explain ACLs."""

from collections.abc import Sequence

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import usage_errors
from odradek.cli.common import cluster_options, options, print_rows, say, table_options, with_admin
from odradek.security import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    Principal,
    Reason,
    ResourcePattern,
    ResourceType,
    kafka_name,
)
from odradek.texts.acl_texts import UNSEEN_KEYS, operation_of, principal_of, resource_of
from odradek.texts.acl_texts import explain as explain_action

_filter_options = options(
    click.option("--principal", type=principal_of, metavar="TYPE:NAME", help="Of this principal."),
    click.option("--resource", type=resource_of, metavar="TYPE:NAME", help="On this name."),
    click.option("--operation", type=operation_of, metavar="NAME", help="With this operation."),
    click.option("--host", metavar="ADDRESS", help="For this host; * are those for all."),
    click.option("--allow/--deny", "allows", default=None, help="Only ACLs that allow, or that deny."),
)


_action_arguments = options(
    click.argument("principal", type=principal_of),
    click.argument("operation", type=operation_of),
    click.argument("resource", type=resource_of),
)


def _filter(
    pattern_type: PatternType,
    principal: Principal | None,
    resource: ResourcePattern | None,
    operation: AclOperation | None,
    host: str | None,
    *,
    allows: bool | None,
) -> AclFilter:
    permission_type = AclPermissionType.ALLOW if allows else AclPermissionType.DENY
    return AclFilter(
        resource_type=ResourceType.ANY if resource is None else resource.resource_type,
        name=None if resource is None else resource.name,
        pattern_type=pattern_type,
        principal=None if principal is None else str(principal),
        host=host,
        operation=operation or AclOperation.ANY,
        permission_type=AclPermissionType.ANY if allows is None else permission_type,
    )


@click.group(name="acls", cls=CommandGroup)
def command() -> None:
    """List, add, remove and explain ACLs: which principal may do what."""


@command.command(name="list")
@_filter_options
@table_options
@cluster_options
def list_acls(
    *,
    principal: Principal | None,
    resource: ResourcePattern | None,
    operation: AclOperation | None,
    host: str | None,
    allows: bool | None,
    as_json: bool,
) -> None:
    """List ACLs; with --resource, those that decide about it, also by * and by prefixes of its name."""
    pattern_type = PatternType.ANY if resource is None else PatternType.MATCH
    wanted = _filter(pattern_type, principal, resource, operation, host, allows=allows)

    _print(with_admin(lambda client: client.describe_acls(wanted)), as_json=as_json)


@command.command()
@_action_arguments
@click.option("--prefixed", is_flag=True, help="For all resources whose names start with that of RESOURCE.")
@click.option("--deny", is_flag=True, help="Deny it, which overrides all that allows it.")
@click.option("--host", default="*", metavar="ADDRESS", help="Only from this host.  [default: all]")
@cluster_options
def add(
    *, principal: Principal, operation: AclOperation, resource: ResourcePattern, prefixed: bool, deny: bool, host: str
) -> None:
    """Allow PRINCIPAL the OPERATION on RESOURCE, which is TYPE:NAME.

    \b
    odradek acls add User:alice read topic:flights
    odradek acls add User:alice all topic:alice- --prefixed
    odradek acls add User:alice read group:*
    odradek acls add User:alice describe cluster
    """  # noqa: D301 - click needs the character
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission_type = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    entry = AclEntry(principal=str(principal), host=host, operation=operation, permission_type=permission_type)
    binding = AclBinding(pattern=resource._replace(pattern_type=pattern_type), entry=entry)
    with usage_errors():
        binding.check()
    with_admin(lambda client: client.create_acls([binding]))
    say(f"added: {binding}")


@command.command()
@_filter_options
@click.option("--prefixed", is_flag=True, help="Those for names that start with the name of --resource.")
@click.option("--all", "is_all", is_flag=True, help="All ACLs.")
@cluster_options
def remove(
    *,
    principal: Principal | None,
    resource: ResourcePattern | None,
    operation: AclOperation | None,
    host: str | None,
    allows: bool | None,
    prefixed: bool,
    is_all: bool,
) -> None:
    """Remove the ACLs that match all of the options."""
    given = (principal, resource, operation, host, allows)
    if is_all == any(each is not None for each in given):
        raise click.UsageError("choose ACLs with --principal, --resource, --operation, --host, --deny, or give --all")
    exact = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    pattern_type = exact if resource is not None or prefixed else PatternType.ANY
    wanted = _filter(pattern_type, principal, resource, operation, host, allows=allows)

    removed = with_admin(lambda client: client.delete_acls([wanted]))
    for each in removed:
        say(f"removed: {each}")
    if not removed:
        click.echo("no ACL matches", err=True)


@command.command()
@_action_arguments
@click.option("--host", default="", metavar="ADDRESS", help="The client's address.  [default: one without own ACLs]")
@cluster_options
def explain(*, principal: Principal, operation: AclOperation, resource: ResourcePattern, host: str) -> None:
    """Say whether PRINCIPAL may do OPERATION on RESOURCE, which is TYPE:NAME, and which ACL decides.

    \b
    odradek acls explain User:alice read topic:flights
    """  # noqa: D301 - click needs the character
    found = with_admin(lambda client: explain_action(client, principal, operation, resource, host))
    say(str(found))
    if found.decision.reason is Reason.NO_MATCH:
        _print(found.bindings, as_json=False)
    if not found.has_keys:
        click.echo(UNSEEN_KEYS, err=True)


def _print(bindings: Sequence[AclBinding], *, as_json: bool) -> None:
    columns = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "NAME", "HOST")
    rows = [
        (
            entry.principal,
            entry.permission_type.name,
            kafka_name(entry.operation),
            kafka_name(pattern.resource_type),
            pattern.pattern_type.name,
            pattern.name,
            entry.host,
        )
        for pattern, entry in ((each.pattern, each.entry) for each in bindings)
    ]
    print_rows(columns, rows, as_json=as_json)
