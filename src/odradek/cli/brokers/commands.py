"""`odradek brokers list`, `describe` and `unregister`."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import click
from msgspec import Struct

from odradek.cli import CommandGroup
from odradek.cli.brokers.details import features, log_dirs, versions
from odradek.cli.brokers.drain import drain
from odradek.cli.checks import ID
from odradek.cli.common import cluster_options, print_json, print_listing, print_table, say, table_options, with_admin
from odradek.clients import Admin
from odradek.clients.admin.descriptions import BrokerDescription, ClusterDescription
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.model import ErrorCode, KafkaError, explained


@click.group(name="brokers", cls=CommandGroup)
def command() -> None:
    """List and describe brokers, move replicas off one, and unregister one."""


for _other in (drain, features, log_dirs, versions):
    command.add_command(_other)


@command.command(name="list")
@table_options
@cluster_options
def list_brokers(*, as_json: bool) -> None:
    """List the registered brokers, and show which one is the controller and which are fenced."""
    cluster = with_admin(lambda client: client.describe_cluster(include_fenced_brokers=True))
    print_listing(
        cluster.brokers,
        ("BROKER", "ADDRESS", "RACK", ""),
        lambda each: (each.broker_id, each.address, each.rack, _role(each, cluster)),
        as_json=as_json,
        as_object=lambda each: _summary(each, cluster),
    )


@command.command()
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@table_options
@cluster_options
def describe(*, ids: Sequence[int], as_json: bool) -> None:
    """Show the leaders, replicas and data directories of brokers, by default of all."""

    async def work(client: Admin) -> tuple[ClusterDescription, list[_Described]]:
        cluster = await client.describe_cluster()
        return cluster, await _describe(client, _brokers_of(cluster, ids))

    cluster, described = with_admin(work)
    for each in described:
        if as_json:
            print_json(_as_object(each, cluster))
        else:
            _print(each, cluster)


@command.command()
@click.argument("broker_id", type=ID, metavar="ID")
@cluster_options
def unregister(*, broker_id: int) -> None:
    """Unregister the broker ID, which is stopped for good, so that new topics are not placed on it.

    Its replicas stay assigned to it: move them first, with `odradek brokers drain`.
    """
    with_admin(lambda client: client.unregister_broker(broker_id))
    say(f"Broker {broker_id} is no longer registered.")


class _Described(Struct, frozen=True, kw_only=True):
    """A broker, how many partitions it leads and replicates, and its data directories."""

    broker: BrokerDescription
    leaders: int
    replicas: int
    log_dirs: Sequence[LogDirDescription]


def _brokers_of(cluster: ClusterDescription, ids: Sequence[int]) -> list[BrokerDescription]:
    """Return the brokers with these ids, or all without ids. Raises `KafkaError` for an id without a live broker."""
    by_id = {broker.broker_id: broker for broker in cluster.brokers}
    for broker_id in ids:
        if broker_id not in by_id:
            alive = ", ".join(map(str, by_id))
            raise KafkaError(
                ErrorCode.broker_not_available, f"broker {broker_id} is not available; live brokers: {alive}"
            )
    return [by_id[broker_id] for broker_id in dict.fromkeys(ids)] or list(cluster.brokers)


async def _describe(client: Admin, brokers: Sequence[BrokerDescription]) -> list[_Described]:
    topics = await client.list_topics(include_internal=True)
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(broker_id for partition in partitions for broker_id in partition.replicas)
    found = await asyncio.gather(*(client.describe_log_dirs(broker.broker_id) for broker in brokers))
    return [
        _Described(
            broker=broker, leaders=leaders[broker.broker_id], replicas=replicas[broker.broker_id], log_dirs=log_dirs
        )
        for broker, log_dirs in zip(brokers, found, strict=True)
    ]


def _summary(broker: BrokerDescription, cluster: ClusterDescription) -> dict[str, object]:
    return {
        "broker_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": broker.broker_id == cluster.controller_id,
        "is_fenced": broker.is_fenced,
    }


def _as_object(described: _Described, cluster: ClusterDescription) -> dict[str, object]:
    return {
        **_summary(described.broker, cluster),
        "leader_count": described.leaders,
        "replica_count": described.replicas,
        "log_dirs": [
            {
                "log_dir": each.log_dir,
                "error": None if each.error_code == ErrorCode.none else each.error_code.name.upper(),
                "partition_count": len(each.sizes),
                "size_bytes": sum(each.sizes.values()),
                "total_bytes": each.total_bytes,
                "usable_bytes": each.usable_bytes,
            }
            for each in described.log_dirs
        ],
    }


def _print(described: _Described, cluster: ClusterDescription) -> None:
    broker = described.broker
    parts = [f"broker {broker.broker_id}", broker.address]
    if broker.rack is not None:
        parts.append(f"rack {broker.rack}")
    if broker.broker_id == cluster.controller_id:
        parts.append("controller")
    say("  ".join([*parts, f"leads {described.leaders} of {described.replicas} replicas"]))
    rows = [
        (
            each.log_dir if each.error_code == ErrorCode.none else f"{each.log_dir} ({explained(each.error_code)})",
            len(each.sizes),
            sum(each.sizes.values()),
            each.usable_bytes,
        )
        for each in described.log_dirs
    ]
    print_table(("DIRECTORY", "LOGS", "BYTES", "BYTES FREE"), rows)


def _role(broker: BrokerDescription, cluster: ClusterDescription) -> str:
    if broker.is_fenced:
        return "fenced"
    return "controller" if broker.broker_id == cluster.controller_id else ""
