"""`odradek topics`: create, list, describe, alter and delete topics."""

from collections.abc import Sequence

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import COUNT, TOPIC_NAME, TOPIC_NAMES, key_and_value
from odradek.cli.cluster_names import complete_topics, topics_of_names
from odradek.cli.common import (
    cluster_options,
    print_json,
    print_listing,
    print_table,
    say,
    settings_of,
    table_options,
    with_admin,
)
from odradek.cli.configs import check_keys
from odradek.clients import Admin
from odradek.clients.admin.descriptions import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    TopicDescription,
)
from odradek.config.altering import Alteration, AlterOperation
from odradek.metadata.nodes import encode_topic_id
from odradek.model import ErrorCode, KafkaError
from odradek.model.names import INTERNAL_TOPICS


@click.group(name="topics", cls=CommandGroup)
def command() -> None:
    """Create, list, describe, alter and delete topics."""


_names_argument = click.argument(
    "names", nargs=-1, required=True, type=TOPIC_NAMES, metavar="NAME...", shell_complete=complete_topics
)


@command.command()
@click.argument("name", type=TOPIC_NAME)
@click.option("--partitions", "-p", type=COUNT, help="Number of partitions.  [default: the cluster's]")
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, 2**15 - 1),
    help="Number of replicas.  [default: the cluster's]",
)
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@click.option("--validate-only", is_flag=True, help="Only check whether it could be created.")
@cluster_options
def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
    validate_only: bool,
) -> None:
    """Create the topic NAME."""
    settings = settings_of(configs)

    async def work(cluster: Admin) -> None:
        try:
            await cluster.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=settings,
                validate_only=validate_only,
            )
        except KafkaError as error:
            if error.code != ErrorCode.topic_already_exists or not if_not_exists:
                raise
            say(f"topic {name} exists")
        else:
            say(f"topic {name} {'can be created' if validate_only else 'created'}")

    with_admin(work)


@command.command(name="list")
@click.option("--internal", is_flag=True, help="Also list internal topics.")
@table_options
@cluster_options
def list_topics(*, internal: bool, as_json: bool) -> None:
    """List the topics, with their numbers of partitions and replicas."""
    topics = with_admin(lambda cluster: cluster.list_topics(include_internal=internal))
    print_listing(
        topics,
        ("TOPIC", "PARTITIONS", "REPLICAS"),
        lambda topic: (topic.name, len(topic.partitions), topic.replication_factor),
        as_json=as_json,
        as_object=_summary,
    )


@command.command()
@_names_argument
@table_options
@cluster_options
def describe(*, names: Sequence[str], as_json: bool) -> None:
    """Show the partitions, replicas and configuration of topics; a NAME may have wildcards, as 'orders-*'."""

    async def work(cluster: Admin) -> tuple[dict[str, TopicDescription], dict[ConfigResource, list[ConfigEntry]]]:
        topics = await cluster.describe_topics(await topics_of_names(cluster, names))
        return topics, await cluster.describe_configs(
            ConfigResource(type=ConfigResourceType.TOPIC, name=name) for name in topics
        )

    topics, configs = with_admin(work)
    for resource, entries in configs.items():
        topic = topics[resource.name]
        changed = {entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}
        if as_json:
            print_json(_summary(topic) | {"configs": changed, "partitions": _partitions(topic)})
        else:
            _print_topic(topic, changed)


@command.command()
@click.argument("name", type=TOPIC_NAME, shell_complete=complete_topics)
@click.option("--partitions", "-p", type=COUNT, help="The new number of partitions, larger than now.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting; may be repeated.")
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY", help="Remove a topic setting; may be repeated."
)
@click.option("--validate-only", is_flag=True, help="Only check whether it is possible.")
@cluster_options
def alter(
    *, name: str, partitions: int | None, configs: Sequence[str], deleted: Sequence[str], validate_only: bool
) -> None:
    """Change the number of partitions or the configuration of the topic NAME."""
    changes = [
        Alteration(name=key, operation=AlterOperation.SET, value=value) for key, value in map(key_and_value, configs)
    ]
    changes += [Alteration(name=key, operation=AlterOperation.DELETE, value=None) for key in deleted]
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")

    async def work(cluster: Admin) -> None:
        if changes:
            topic = ConfigResource(type=ConfigResourceType.TOPIC, name=name)
            await check_keys(cluster, topic, deleted)
            await cluster.alter_configs(topic, changes, validate_only=validate_only)
        if partitions is not None:
            await cluster.create_partitions(name, partitions, validate_only=validate_only)

    with_admin(work)
    say(f"topic {name} {'can be altered' if validate_only else 'altered'}")


@command.command()
@_names_argument
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@click.option("--yes-internal", is_flag=True, help="Also delete internal topics: offsets and transactions are LOST.")
@cluster_options
def delete(*, names: Sequence[str], if_exists: bool, yes_internal: bool) -> None:
    """Delete topics and all their records; a NAME may have wildcards, as 'orders-*'."""
    if not yes_internal and (internal := sorted(INTERNAL_TOPICS.intersection(names))):
        raise click.UsageError(
            f"{internal[0]} is internal: the committed offsets, transactions or history of all groups would be lost; "
            "add --yes-internal to delete it"
        )

    async def work(cluster: Admin) -> None:
        for name in await topics_of_names(cluster, names, may_be_none=if_exists):
            try:
                await cluster.delete_topics([name])
            except KafkaError as error:
                if error.code != ErrorCode.unknown_topic_or_partition or not if_exists:
                    raise
            else:
                say(f"topic {name} deleted")

    with_admin(work)


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": encode_topic_id(topic.topic_id) if topic.topic_id is not None else None,
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _partitions(topic: TopicDescription) -> list[dict[str, object]]:
    return [
        {
            "partition": number,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "offline_replicas": partition.offline_replicas,
        }
        for number, partition in topic.partitions.items()
    ]


def _print_topic(topic: TopicDescription, configs: dict[str, str | None]) -> None:
    summary = _summary(topic)
    say(
        f"topic {topic.name}  id {summary['topic_id'] or 'unknown'}  partitions {len(topic.partitions)}  "
        f"replicas {topic.replication_factor}"
    )
    for name, value in configs.items():
        say(f"  {name}={value}")
    rows = [
        (number, partition.leader, partition.leader_epoch, _ids(partition.replicas), _ids(partition.isr))
        for number, partition in topic.partitions.items()
    ]
    print_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"), rows)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
