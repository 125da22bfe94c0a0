"""`odradek metadata`: read and write a tree, give up lost disks and records, adopt data directories of Apache Kafka.

`ls`, `get` and `watch` are in `tree_view`, `create`, `set`, `delete` and `set-acls` in `tree_writes`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from odradek.broker.cluster.registration.directories import accept_losses, forget_directories
from odradek.broker.cluster.registration.kafka_directories import AdoptedTopic, Adoption, adopt, identity
from odradek.broker.log.names import parse_folder
from odradek.cli import CommandGroup, tree_view, tree_writes
from odradek.cli.checks import ID, TREE_URL
from odradek.cli.common import json_line, json_option, say, zookeeper_config_option, zookeeper_keys
from odradek.metadata.nodes import encode_topic_id
from odradek.metadata.store import Store
from odradek.model import ConfigurationError
from odradek.runtime import SystemDisk, system_runtime
from odradek.stores import open_store

T = TypeVar("T")


@click.group(name="metadata", cls=CommandGroup)
def command() -> None:
    """Work on a metadata tree, which holds the topics, their partitions and their leaders."""


_WRITES = (
    tree_writes.create,
    tree_writes.set_command,
    tree_writes.delete,
    tree_writes.set_acls,
    tree_writes.require_proofs,
)
for _each in (tree_view.ls, tree_view.get, tree_view.watch, *_WRITES):
    command.add_command(_each)


@command.command(name="forget-directory")
@click.argument("ids", nargs=-1, required=True, metavar="DIRECTORY_ID...")
@click.option("--metadata", type=TREE_URL, required=True, help="The tree: the URL of the broker's --metadata.")
@zookeeper_config_option
@click.option("--broker-id", type=ID, metavar="N", required=True, help="The broker that had the directories.")
def forget_directory(*, ids: Sequence[str], metadata: str, broker_id: int) -> None:
    """Declare data directories of a broker lost for good, with all their records.

    A broker that misses a directory reports its directory.id. If no other replica has a partition's records, the broker
    neither creates the partition again nor uses an older log of it. After this command, the broker's next start creates
    the partition again, empty, or uses the older log.
    """
    for path in asyncio.run(_with_store(metadata, lambda store: forget_directories(store, broker_id, ids))):
        say(f"broker {broker_id} has given up all that was in {path}; start it again")


@command.command(name="accept-loss")
@click.argument("partitions", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@click.option("--metadata", type=TREE_URL, required=True, help="The tree: the URL of the broker's --metadata.")
@zookeeper_config_option
@click.option("--broker-id", type=ID, metavar="N", required=True, help="The broker that has the logs.")
def accept_loss(*, partitions: Sequence[str], metadata: str, broker_id: int) -> None:
    """Give up the records that logs of a broker have LOST, so that the broker may lead these partitions again.

    A broker does not use a log that is shorter than its checkpoints say, or whose folder is gone, while no other
    replica is in sync. After this command, its next start uses the log, and the other replicas truncate theirs to it.
    If another replica has the records, elect it instead: odradek partitions elect --unclean.
    """
    keys = [parse_folder(each) for each in partitions]
    if None in keys:
        raise click.UsageError(f"{partitions[keys.index(None)]} is not TOPIC-PARTITION, such as flights-0")
    accepted = [each for each in keys if each is not None]
    asyncio.run(_with_store(metadata, lambda store: accept_losses(store, broker_id, accepted)))
    say(f"broker {broker_id} has given up the lost records of {', '.join(map(str, accepted))}; start it again")


async def _with_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    store = open_store(url, system_runtime(), must_exist=True, zookeeper=zookeeper_keys())
    try:
        return await work(store)
    finally:
        await store.close()


@command.command(name="adopt")
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False), metavar="DIR...")
@click.option("--metadata", type=TREE_URL, required=True, help="The tree: sqlite:///PATH outside of DIR, for instance.")
@zookeeper_config_option
@json_option
def adopt_command(*, directories: Sequence[str], metadata: str, as_json: bool) -> None:
    """Write the topics of a stopped Kafka broker's data directories DIR into a metadata tree, to be served from there.

    Topics keep their ids, partitions and configuration, groups their offsets. Serve them with the same --data-dir and
    --metadata, and with the broker id that this command prints. Nothing in DIR is changed, so Kafka can serve it
    again: therefore the tree must not be in DIR, where Kafka accepts logs only. Exits with 1 if a topic had to be left
    out, because its id is unknown.
    """
    _check_place(directories, metadata)
    adoption = asyncio.run(_adopt(directories, metadata))
    for topic in adoption.topics:
        say(_json(topic) if as_json else _text(topic))
    if not as_json:
        where = f"--data-dir {','.join(directories)} --broker-id {adoption.broker_id} --metadata {metadata}"
        say(f"{len(adoption.topics)} topics; serve them with {where}")
    for unknown in adoption.unknown:
        say(f"odradek: {unknown}", is_remark=True)
    if adoption.unknown:
        raise click.exceptions.Exit(1)


def _check_place(directories: Sequence[str], metadata: str) -> None:
    """Raise `ConfigurationError` if the tree's file is in one of the directories."""
    disk, path = SystemDisk(), metadata.removeprefix("sqlite:///")
    for directory in directories:
        inside = f"{disk.absolute(directory).rstrip('/')}/"
        if path != metadata and disk.absolute(path).startswith(inside):
            raise ConfigurationError(
                f"the tree {path} is in {directory}, where Kafka would refuse to start with it; choose a path outside"
            )


async def _adopt(directories: Sequence[str], url: str) -> Adoption:
    runtime = system_runtime()
    identity(runtime.disk, directories[0])  # before a new tree is created
    store = open_store(url, runtime, zookeeper=zookeeper_keys())
    try:
        return await adopt(runtime.disk, directories, store, runtime.entropy)
    finally:
        await store.close()


def _json(topic: AdoptedTopic) -> str:
    return json_line(
        {
            "name": topic.name,
            "topic_id": encode_topic_id(topic.topic_id),
            "partitions": len(topic.epochs),
            "config": topic.config,
            "ignored_config": topic.ignored,
            "is_new": topic.is_new,
        }
    )


def _text(topic: AdoptedTopic) -> str:
    count = len(topic.epochs)
    text = f"{topic.name}: {count} partition{'s' if count != 1 else ''}"
    text += "".join(f" {key}={value}" for key, value in topic.config.items())
    if not topic.is_new:
        text += ", known already"
    if topic.ignored:
        text += f"; without {', '.join(f'{key}={value}' for key, value in topic.ignored.items())}"
    return text
