"""`odradek configs`: show and change the configuration of topics, groups, brokers and their loggers at run time."""

from collections.abc import Iterable, Sequence

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import ID, TOPIC_NAME, key_and_value
from odradek.cli.cluster_names import complete_groups, complete_topics
from odradek.cli.common import cluster_options, options, print_listing, print_rows, say, table_options, with_admin
from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource
from odradek.config.altering import Alteration, AlterOperation
from odradek.config.definition import unknown_key
from odradek.model import ErrorCode, KafkaError

_UNSET = (ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG)


_resource_options = options(
    click.option("--topic", "-t", type=TOPIC_NAME, help="A topic.", shell_complete=complete_topics),
    click.option("--group", "-g", metavar="ID", help="A consumer group.", shell_complete=complete_groups),
    click.option("--broker", "-n", type=ID, metavar="ID", help="A broker."),
    click.option("--broker-logger", type=ID, metavar="ID", help="The log levels of a broker."),
    click.option("--all-brokers", is_flag=True, help="The defaults of all brokers."),
)
"""A command takes exactly one."""


@click.group(name="configs", cls=CommandGroup)
def command() -> None:
    """Show and change the configuration of topics, consumer groups and brokers."""


@command.command(name="list")
@table_options
@cluster_options
def list_resources(*, as_json: bool) -> None:
    """List the topics and brokers that have a configuration."""
    resources = with_admin(lambda client: client.list_config_resources())
    print_rows(("TYPE", "NAME"), [(each.type.name.lower(), each.name) for each in resources], as_json=as_json)


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
) -> None:
    """Show the configuration of a topic, a group or a broker, and the source of each value."""
    resource = _resource(topic, group, broker, broker_logger, all_brokers=all_brokers)

    async def work(cluster: Admin) -> list[ConfigEntry]:
        await _check_broker(cluster, resource)
        found = await cluster.describe_configs([resource], include_synonyms=True, include_documentation=as_json)
        return found[resource]

    entries = [entry for entry in with_admin(work) if show_all or entry.source not in _UNSET]
    print_listing(
        entries,
        ("KEY", "VALUE", "SOURCE", ""),
        lambda each: (each.name, each.value, each.source.name, "read-only" if each.is_read_only else ""),
        as_json=as_json,
        as_object=_as_object,
    )


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

    async def work(cluster: Admin) -> None:
        await _check_broker(cluster, resource)
        await check_keys(cluster, resource, deleted)
        await cluster.alter_configs(resource, changes, validate_only=validate_only)

    with_admin(work)
    say(f"{_shown(resource)} {'can be configured so' if validate_only else 'configured'}")


async def _check_broker(client: Admin, resource: ConfigResource) -> None:
    """Raise `KafkaError` for a broker that is not live, which a request would await until its time-out."""
    if resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and resource.name:
        live = [str(broker.broker_id) for broker in (await client.describe_cluster()).brokers]
        if resource.name not in live:
            message = f"broker {resource.name} is not available; live brokers: {', '.join(live)}"
            raise KafkaError(ErrorCode.broker_not_available, message)


async def check_keys(client: Admin, resource: ConfigResource, keys: Iterable[str]) -> None:
    """Raise `ConfigurationError` for a key that the resource cannot have: brokers delete it without a word, as Kafka's.

    Keys that are not set are named on stderr.
    """
    if not (wanted := list(keys)):
        return
    entries = (await client.describe_configs([resource]))[resource]
    known = {entry.name: entry.source for entry in entries}
    if resource.type is ConfigResourceType.BROKER and not resource.name:
        # The defaults of all brokers are only those that are set; a broker has all keys.
        broker = (await client.describe_cluster()).brokers[0].broker_id
        every = ConfigResource(type=ConfigResourceType.BROKER, name=str(broker))
        names = [entry.name for entry in (await client.describe_configs([every]))[every]]
        known = dict.fromkeys(names, ConfigSource.DEFAULT_CONFIG) | known
    for key in wanted:
        if key not in known:
            raise unknown_key(key, known)
        if known[key] in _UNSET:
            say(f"odradek: {key} is not set for {_shown(resource)}, and nothing is removed", is_remark=True)


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
