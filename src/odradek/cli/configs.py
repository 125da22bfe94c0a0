"""`odradek configs`: show and change the configuration of topics, groups, brokers and their loggers at run time."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from odradek.cli import CommandGroup
from odradek.cli.common import admin, cluster_options, key_and_value, print_json, print_table, run, table_options
from odradek.clients.admin.descriptions import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource
from odradek.config import Alteration, AlterOperation

F = TypeVar("F", bound=Callable[..., Any])
_UNSET = (ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG)


def _resource_options(function: F) -> F:
    """Add `--topic`, `--group`, `--broker`, `--broker-logger` and `--all-brokers`; a command takes exactly one."""
    for option in (
        click.option("--all-brokers", is_flag=True, help="The defaults of all brokers."),
        click.option("--broker-logger", type=click.IntRange(min=0), metavar="ID", help="The log levels of a broker."),
        click.option("--broker", "-n", type=click.IntRange(min=0), metavar="ID", help="A broker."),
        click.option("--group", "-g", metavar="ID", help="A consumer group."),
        click.option("--topic", "-t", metavar="NAME", help="A topic."),
    ):
        function = option(function)
    return function


@click.group(name="configs", cls=CommandGroup)
def command() -> None:
    """Show and change the configuration of topics, consumer groups and brokers."""


@command.command(name="list")
@table_options
@cluster_options
def list_resources(*, as_json: bool, bootstrap_server: str | None, command_config: str | None) -> None:
    """List the topics and brokers that have a configuration."""

    async def work() -> list[ConfigResource]:
        async with admin(bootstrap_server, command_config) as client:
            return await client.list_config_resources()

    resources = run(work())
    if as_json:
        for each in resources:
            print_json({"type": each.type.name.lower(), "name": each.name})
        return
    print_table(("TYPE", "NAME"), [(each.type.name.lower(), each.name) for each in resources])


@command.command()
@_resource_options
@click.option("--all", "-a", "show_all", is_flag=True, help="Also keys that have not been changed at runtime.")
@table_options
@cluster_options
def describe(
    *,
    topic: str | None,
    group: str | None,
    broker: int | None,
    broker_logger: int | None,
    all_brokers: bool,
    show_all: bool,
    as_json: bool,
    bootstrap_server: str | None,
    command_config: str | None,
) -> None:
    """Show the configuration of a topic, a group or a broker, and the source of each value."""
    resource = _resource(topic, group, broker, broker_logger, all_brokers=all_brokers)

    async def work() -> list[ConfigEntry]:
        async with admin(bootstrap_server, command_config) as cluster:
            found = await cluster.describe_configs([resource], include_synonyms=True, include_documentation=as_json)
            return found[resource]

    entries = [entry for entry in run(work()) if show_all or entry.source not in _UNSET]
    if as_json:
        for entry in entries:
            print_json(_as_object(entry))
        return
    rows = [
        (entry.name, entry.value, entry.source.name, "read-only" if entry.is_read_only else "") for entry in entries
    ]
    print_table(("KEY", "VALUE", "SOURCE", ""), rows)


@command.command()
@_resource_options
@click.option("--set", "-c", "set_", multiple=True, metavar="KEY=VALUE", help="Set a key; may be repeated.")
@click.option(
    "--delete",
    "-d",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Remove a key, back to its default; may be repeated.",
)
@click.option("--append", "appended", multiple=True, metavar="KEY=ITEM[,…]", help="Add to a list; may be repeated.")
@click.option(
    "--subtract", "subtracted", multiple=True, metavar="KEY=ITEM[,…]", help="Remove from a list; may be repeated."
)
@click.option("--validate-only", is_flag=True, help="Only check whether it is possible.")
@cluster_options
def alter(
    *,
    topic: str | None,
    group: str | None,
    broker: int | None,
    broker_logger: int | None,
    all_brokers: bool,
    set_: Sequence[str],
    deleted: Sequence[str],
    appended: Sequence[str],
    subtracted: Sequence[str],
    validate_only: bool,
    bootstrap_server: str | None,
    command_config: str | None,
) -> None:
    """Change the configuration of a topic, a group or a broker, effective at once."""
    resource = _resource(topic, group, broker, broker_logger, all_brokers=all_brokers)
    changes = [
        Alteration(name=key, operation=operation, value=value)
        for operation, texts in (
            (AlterOperation.SET, set_),
            (AlterOperation.APPEND, appended),
            (AlterOperation.SUBTRACT, subtracted),
        )
        for key, value in map(key_and_value, texts)
    ]
    changes += [Alteration(name=key, operation=AlterOperation.DELETE, value=None) for key in deleted]
    if not changes:
        raise click.UsageError("nothing to change: give --set, --delete, --append or --subtract")

    async def work() -> None:
        async with admin(bootstrap_server, command_config) as cluster:
            await cluster.alter_configs(resource, changes, validate_only=validate_only)
        click.echo(f"{_shown(resource)} {'can be configured so' if validate_only else 'configured'}")

    run(work())


def _resource(
    topic: str | None, group: str | None, broker: int | None, broker_logger: int | None, *, all_brokers: bool
) -> ConfigResource:
    if sum(each is not None for each in (topic, group, broker, broker_logger)) + all_brokers != 1:
        raise click.UsageError("give exactly one of --topic, --group, --broker, --broker-logger and --all-brokers")
    if broker_logger is not None:
        return ConfigResource(type=ConfigResourceType.BROKER_LOGGER, name=str(broker_logger))
    if group is not None:
        return ConfigResource(type=ConfigResourceType.GROUP, name=group)
    if topic is not None:
        return ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
    return ConfigResource(type=ConfigResourceType.BROKER, name="" if broker is None else str(broker))


def _shown(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower().replace('_', ' ')} {resource.name}" if resource.name else "all brokers"


def _as_object(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [{"name": name, "value": value, "source": source.name} for name, value, source in entry.synonyms],
        "documentation": entry.documentation,
    }
