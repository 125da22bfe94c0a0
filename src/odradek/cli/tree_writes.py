"""`odradek metadata create|set|delete|set-acls|require-proofs`: write nodes of the metadata tree, as `zkCli.sh` does.

Without `--force`, only those that tools may write, with a value that brokers can read: requests below `/admin`,
configurations, and offsets of generation 1. The others are written by brokers and consumers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from odradek.cli.checks import TREE_PATH
from odradek.cli.common import run, say, zookeeper_keys
from odradek.cli.tree_view import look_at_tree, tree_location, tree_url
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    ClusterSecretNode,
    ConfigNode,
    DeleteTopicsNode,
    PreferredReplicaElectionNode,
    ReassignPartitionsNode,
    decode_integer,
)
from odradek.metadata.reading import read_subtree
from odradek.metadata.store import Reader, Store
from odradek.model import ConfigurationError, PreconditionError
from odradek.runtime import system_runtime
from odradek.stores import open_reader, open_store
from odradek.stores.opening import READER_CONNECTION_TIMEOUT_MS

F = TypeVar("F", bound=Callable[..., Any])
_MOST_REQUESTS: Final = 1000
"""The most requests that `set-acls` has in flight, because ZooKeeper queues all that a client has sent."""
_WRITABLE: Final[dict[str, Callable[[str, bytes], object]]] = {
    paths.REASSIGN_PARTITIONS: ReassignPartitionsNode.decode,
    paths.PREFERRED_REPLICA_ELECTION: PreferredReplicaElectionNode.decode,
    paths.DELETE_TOPICS: DeleteTopicsNode.decode,
    f"{paths.DELETE_TOPICS}/[^/]+": lambda path, data: None,
    f"{paths.CONFIG}/(topics|brokers|groups|users)/[^/]+": ConfigNode.decode,
    f"{paths.CONSUMERS}/[^/]+(/offsets(/[^/]+)?)?": lambda path, data: None,
    f"{paths.CONSUMERS}/[^/]+/offsets/[^/]+/[0-9]+": decode_integer,
}
"""The paths that tools may write, and what checks the value."""


def _write_options(function: F) -> F:
    force = click.option("--force", is_flag=True, help="Also a node of brokers or consumers, and any value.")
    return force(tree_location(function))


@click.command()
@click.argument("path", type=TREE_PATH)
@click.argument("value", default="")
@_write_options
def create(*, path: str, value: str, metadata: str | None, data_dir: str, force: bool) -> None:
    """Create the persistent node PATH, whose parent must exist, with VALUE.

    \b
    odradek metadata create /admin/delete_topics/flights
    odradek metadata create /admin/preferred_replica_election \
        '{"version":1,"partitions":[{"topic":"flights","partition":0}]}'
    """  # noqa: D301 - click needs the character
    data = _checked(path, value, force=force)
    _change(tree_url(metadata, data_dir), lambda store: store.create(path, data))
    say(f"created {path}")


@click.command(name="set")
@click.argument("path", type=TREE_PATH)
@click.argument("value")
@_write_options
def set_command(*, path: str, value: str, metadata: str | None, data_dir: str, force: bool) -> None:
    """Replace the value of the node PATH.

    \b
    odradek metadata set /config/topics/flights '{"version":1,"config":{"retention.ms":"3600000"}}'
    """  # noqa: D301 - click needs the character
    data = _checked(path, value, force=force)
    _change(tree_url(metadata, data_dir), lambda store: store.set(path, data))
    say(f"changed {path}")


@click.command()
@click.argument("path", type=TREE_PATH)
@_write_options
def delete(*, path: str, metadata: str | None, data_dir: str, force: bool) -> None:
    """Delete the node PATH, which must have no children."""
    _checked(path, None, force=force)
    _change(tree_url(metadata, data_dir), lambda store: store.delete(path))
    say(f"deleted {path}")


@click.command(name="set-acls")
@click.option("--open", "is_open", is_flag=True, help="Let everyone read and change every node.")
@tree_location
def set_acls(*, is_open: bool, metadata: str | None, data_dir: str) -> None:
    """Give the nodes that exist in ZooKeeper the ACLs that zookeeper.set.acl=true gives to new ones.

    Log in as the brokers do. Nodes below /consumers and /zookeeper stay as they are: they belong to the
    consumers and to ZooKeeper.

    \b
    odradek metadata set-acls --metadata zookeeper://host1.example:2281/odradek --zookeeper-config server.properties
    """  # noqa: D301 - click needs the character
    if not tree_url(metadata, data_dir).startswith("zookeeper://"):
        raise ConfigurationError("only trees in ZooKeeper have ACLs: give --metadata zookeeper://HOST:PORT/CHROOT")
    if not is_open and not zookeeper_keys().zookeeper_set_acl:
        raise ConfigurationError(
            "set zookeeper.set.acl=true in the file of --zookeeper-config, which is the brokers' own: without it, they "
            "create new nodes without ACLs"
        )

    async def work(tree: Reader) -> int:
        from odradek.stores.zookeeper import ZookeeperStore

        assert isinstance(tree, ZookeeperStore)
        found = await read_subtree(tree, "/")
        nodes = [each for each in found if not f"{each}/".startswith("/zookeeper/")]
        nodes = [each for each in nodes if not each.startswith(f"{paths.CONSUMERS}/")]
        for start in range(0, len(nodes), _MOST_REQUESTS):
            some = nodes[start : start + _MOST_REQUESTS]
            await asyncio.gather(*(tree.set_acl(each, is_open=is_open) for each in some))
        return len(nodes)

    count = look_at_tree(metadata, data_dir, work)
    say(f"{count} nodes are open to everyone" if is_open else f"{count} nodes have the brokers' ACLs")


@click.command(name="require-proofs")
@tree_location
def require_proofs(*, metadata: str | None, data_dir: str) -> None:
    """Let brokers refuse requests of brokers that have no proof, in a cluster that began with an earlier release.

    Do this when every broker has this release, and then restart the brokers one by one.
    """

    async def work(store: Store) -> None:
        node = await store.get(paths.CLUSTER_SECRET)
        if node is None:
            raise PreconditionError(f"there is no {paths.CLUSTER_SECRET}: start a broker of this release first")
        secret = replace(ClusterSecretNode.decode(paths.CLUSTER_SECRET, node.data), requires_proofs=True)
        await store.set(paths.CLUSTER_SECRET, secret.encode())

    _change(tree_url(metadata, data_dir), work)
    click.echo("proofs are required by each broker from its next start on")


def _checked(path: str, value: str | None, *, force: bool) -> bytes:
    """Return a value as bytes. Raises `ConfigurationError` for a node or a value that needs `--force`."""
    data = (value or "").encode()
    decode = next((check for pattern, check in _WRITABLE.items() if re.fullmatch(pattern, path)), None)
    if force:
        return data
    if decode is None or (value is None and path in paths.PERSISTENT_ROOTS):
        raise ConfigurationError(
            f"{path} is written by brokers and consumers themselves, and a wrong value may stop the cluster: "
            "give --force to write it nevertheless"
        )
    try:
        if value is not None:
            decode(path, data)
    except BrokenNodeError as error:
        raise ConfigurationError(f"brokers could not read this value: {error}; --force writes it") from None
    return data


def _change(url: str, work: Callable[[Store], Awaitable[object]]) -> None:
    async def do() -> None:
        runtime, keys = system_runtime(), zookeeper_keys()
        reader = open_reader(url, runtime, zookeeper=keys)
        try:
            await reader.children("/")  # a store would create the tree
        finally:
            await reader.close()
        store = open_store(url, runtime, connection_timeout_ms=READER_CONNECTION_TIMEOUT_MS, zookeeper=keys)
        try:
            await work(store)
        finally:
            await store.close()

    run(do())
