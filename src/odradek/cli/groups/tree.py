"""`odradek groups tree|migrate`: groups of generation 1, whose members and offsets are in the metadata tree."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import click

from odradek.cli.checks import Checked
from odradek.cli.common import admin, cluster_options, print_json, print_table, run, say, wide_option, zookeeper_keys
from odradek.cli.tree_view import look_at_tree, tree_options
from odradek.clients.admin import Admin
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.zookeeper_consumer.machine.registration import validate_node_name
from odradek.clients.zookeeper_consumer.tree_groups import TreeGroup, describe_group, list_groups, set_offsets
from odradek.metadata.nodes import ConsumerNode
from odradek.metadata.store import Reader
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import system_runtime
from odradek.stores import open_reader, open_store

_GROUP: Final = Checked("group", partial(validate_node_name, "GROUP"))
_COLUMNS: Final = ("TOPIC", "PARTITION", "OFFSET", "OWNER")


@click.command()
@click.argument("group", type=_GROUP, required=False)
@tree_options
@wide_option
def tree(*, group: str | None, metadata: str | None, data_dir: str, as_json: bool) -> None:
    """List the groups of ZooKeeper consumers (generation 1), or show the consumers, owners and offsets of one."""

    async def work(reader: Reader) -> list[TreeGroup]:
        names = await list_groups(reader) if group is None else [group]
        return [await describe_group(reader, name) for name in names]

    groups = look_at_tree(metadata, data_dir, work)
    for error in (error for each in groups for error in each.broken):
        say(f"left out: {error}", is_remark=True)
    if group is not None:
        _print_group(groups[0], as_json=as_json)
    elif as_json:
        for each in groups:
            print_json({"group_id": each.group_id, "group_state": _state(each), "group_type": "zookeeper"})
    else:
        rows = [(each.group_id, "zookeeper", _state(each), len(each.consumers), len(each.owners)) for each in groups]
        print_table(("GROUP", "TYPE", "STATE", "CONSUMERS", "OWNED-PARTITIONS"), rows)


def _state(group: TreeGroup) -> str:
    if group.broken:
        return "Broken"
    return "Stable" if group.consumers else "Empty"


def _print_group(group: TreeGroup, *, as_json: bool) -> None:
    if not (group.consumers or group.owners or group.offsets or group.broken):
        raise KafkaError(ErrorCode.group_id_not_found, f"the tree has no group {group.group_id!r}")
    places = sorted({*group.owners, *group.offsets})
    if as_json:
        partitions = [
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed_offset": group.offsets.get(place),
                "owner": group.owners.get(place),
            }
            for place in places
        ]
        members = [
            {"consumer_id": name, "subscription": dict(node.subscription), "pattern": node.pattern}
            for name, node in sorted(group.consumers.items())
        ]
        print_json(
            {"group_id": group.group_id, "group_state": _state(group), "members": members, "partitions": partitions}
        )
        return
    print_table(("CONSUMER", "SUBSCRIPTION"), [(name, _shown(node)) for name, node in sorted(group.consumers.items())])
    click.echo()
    print_table(_COLUMNS, [(*place, group.offsets.get(place), group.owners.get(place)) for place in places])


def _shown(node: ConsumerNode) -> str:
    threads = ", ".join(f"{topic} × {number}" for topic, number in sorted(node.subscription.items()))
    return threads if node.pattern == "static" else f"{node.pattern}: {threads}"


@click.command()
@click.argument("group", type=_GROUP)
@click.option("--to", "target", type=click.Choice(("kafka", "zookeeper")), required=True, help="Where the offsets go.")
@click.option("--execute", is_flag=True, help="Copy the offsets; without it, they are only shown.")
@tree_options
@wide_option
@cluster_options
def migrate(*, group: str, target: str, execute: bool, metadata: str | None, data_dir: str, as_json: bool) -> None:
    """Copy a group's offsets between the tree (generation 1) and __consumer_offsets (the later generations).

    The group must have no consumers in either. Offsets of partitions that do not exist, as those of a deleted topic,
    are left out of a copy to Kafka.
    """
    url = metadata or f"sqlite:///{data_dir}/metadata.sqlite"

    async def work() -> Mapping[TopicPartition, tuple[int | None, int]]:
        in_tree = await _group_in_tree(url, group)
        async with admin() as client:
            await _check_members_in_kafka(client, group)
            committed = (await client.list_group_offsets([group]))[group]
            if isinstance(committed, KafkaError):
                raise committed
            in_kafka = {place: each.offset for place, each in committed.items()}
            source, old = (in_tree.offsets, in_kafka) if target == "kafka" else (in_kafka, in_tree.offsets)
            where = "the tree" if target == "kafka" else "Kafka"
            if source and target == "kafka":
                source, where = await _of_existing_partitions(client, source), "the tree for a partition that exists"
            if not source:
                raise KafkaError(ErrorCode.group_id_not_found, f"group {group!r} has no offsets in {where}")
            if execute and target == "kafka":
                values = {place: OffsetAndMetadata(offset) for place, offset in source.items()}
                await client.alter_group_offsets(group, values)
            elif execute:
                await _write_offsets(url, group, source)
            return {place: (old.get(place), source[place]) for place in sorted(source)}

    moved = run(work())
    if not execute:
        click.echo("dry run: nothing was changed; add --execute to copy these offsets", err=True)
    if as_json:
        for place, (before, after) in moved.items():
            named = {"group_id": group, "topic": place.topic, "partition": place.partition}
            print_json({**named, "committed_offset": before, "new_offset": after, "executed": execute})
        return
    rows = [(group, *place, before, after) for place, (before, after) in moved.items()]
    print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)


async def _group_in_tree(url: str, group_id: str) -> TreeGroup:
    """Return a group of the tree. Raises `KafkaError` if it has consumers, `BrokenNodeError` for an invalid node."""
    reader = open_reader(url, system_runtime(), zookeeper=zookeeper_keys())
    try:
        found = await describe_group(reader, group_id)
    finally:
        await reader.close()
    if found.broken:
        raise found.broken[0]
    if found.consumers:
        names = ", ".join(sorted(found.consumers))
        raise KafkaError(
            ErrorCode.non_empty_group, f"group {group_id!r} has consumers in the tree: {names}; stop them and try again"
        )
    return found


async def _check_members_in_kafka(client: Admin, group_id: str) -> None:
    """Raise `KafkaError` if the group has members."""
    found = (await client.describe_groups([group_id]))[group_id]
    if isinstance(found, KafkaError):
        if found.code is not ErrorCode.group_id_not_found:
            raise found
    elif found.members:
        names = ", ".join(sorted(member.member_id for member in found.members))
        raise KafkaError(
            ErrorCode.non_empty_group, f"group {group_id!r} has members in Kafka: {names}; stop them and try again"
        )


async def _of_existing_partitions(client: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offsets of partitions that exist; name the others on stderr."""
    topics = await client.list_topics(include_internal=True)
    existing = {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions}
    for place in sorted(set(offsets) - existing):
        say(f"left out: there is no partition {place}", is_remark=True)
    return {place: offset for place, offset in offsets.items() if place in existing}


async def _write_offsets(url: str, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    store = open_store(url, system_runtime(), must_exist=True, zookeeper=zookeeper_keys())
    try:
        await set_offsets(store, group_id, offsets)
    finally:
        await store.close()
