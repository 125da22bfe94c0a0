"""`odradek metadata ls|get|watch`: read the metadata tree of a cluster, running or not, without joining it.

Nothing is written or created: a missing database or chroot is an error.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from odradek.cli.checks import TREE_PATH, TREE_URL
from odradek.cli.common import json_option, print_json, run, say, zookeeper_config_option, zookeeper_keys
from odradek.cli.tree_changes import TreeChange, TreeChanges
from odradek.metadata.reading import read_subtree
from odradek.metadata.store import Node, NoNode, Reader
from odradek.runtime import system_runtime
from odradek.stores import open_reader
from odradek.texts.node_texts import owner, pretty, text

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def tree_options(function: F) -> F:
    """Add the options of `tree_location`, and `--json`."""
    return tree_location(json_option(function))


def tree_location(function: F) -> F:
    """Add `--metadata`, `--zookeeper-config` and `--data-dir`."""
    function = click.option(
        "--data-dir", default="odradek-data", show_default=True, metavar="DIR",
        help="The data directory of `serve` or `up`, whose tree is used without --metadata.",
    )(zookeeper_config_option(function))  # fmt: skip
    return click.option("--metadata", type=TREE_URL, help="sqlite:///PATH or zookeeper://HOST:PORT[,…]/CHROOT.")(
        function
    )


@click.command()
@click.argument("path", type=TREE_PATH, default="/")
@click.option("--recursive", "-r", is_flag=True, help="All nodes below, with their paths.")
@tree_options
def ls(*, path: str, recursive: bool, metadata: str | None, data_dir: str, as_json: bool) -> None:
    """List the nodes below PATH, by default of the whole tree."""

    async def work(tree: Reader) -> list[str]:
        names = await tree.children(path)
        return (await read_subtree(tree, path))[1:] if recursive else names

    for name in look_at_tree(metadata, data_dir, work):
        if as_json:
            print_json({"path": name if recursive else f"{path.rstrip('/')}/{name}"})
        else:
            say(name)


@click.command()
@click.argument("names", nargs=-1, type=TREE_PATH, required=True, metavar="PATH...")
@tree_options
def get(*, names: Sequence[str], metadata: str | None, data_dir: str, as_json: bool) -> None:
    """Show the data of nodes: JSON indented, text as it is, other bytes as base64."""

    async def work(tree: Reader) -> list[Node]:
        found = await tree.get_many(names)
        for name, node in zip(names, found, strict=True):
            if node is None:
                raise NoNode(name)
        return [node for node in found if node is not None]

    for name, node in zip(names, look_at_tree(metadata, data_dir, work), strict=True):
        if as_json:
            print_json({"path": name, **_fields(node)})
        else:
            say(f"{name}  version {node.version}  {owner(node.owner)}")
            if node.data:
                click.echo(pretty(node.data))


@click.command()
@click.argument("path", type=TREE_PATH, default="/")
@click.option("--recursive", "-r", is_flag=True, help="All nodes below, not only the node and its children.")
@tree_options
def watch(*, path: str, recursive: bool, metadata: str | None, data_dir: str, as_json: bool) -> None:
    """Print a line for each change of PATH and its children, until Ctrl-C.

    The node need not exist yet. Changes in quick succession may be one line.
    """

    async def work(tree: Reader) -> None:
        async with _watching(tree, path, recursive=recursive) as changes:
            async for change in changes.follow():
                _print_change(change, as_json=as_json)

    look_at_tree(metadata, data_dir, work)


def tree_url(metadata: str | None, data_dir: str) -> str:
    """Return the URL of the tree that the options name."""
    return metadata or f"sqlite:///{data_dir}/metadata.sqlite"


def look_at_tree(metadata: str | None, data_dir: str, work: Callable[[Reader], Awaitable[T]]) -> T:
    """Open the tree that the options name, run `work` on it and close it."""

    async def open_and_work() -> T:
        tree = open_reader(tree_url(metadata, data_dir), system_runtime(), zookeeper=zookeeper_keys())
        try:
            return await work(tree)
        finally:
            await tree.close()

    return run(open_and_work())


@asynccontextmanager
async def _watching(tree: Reader, path: str, *, recursive: bool) -> AsyncIterator[TreeChanges]:
    changes = TreeChanges(tree, path, depth=None if recursive else 1)
    await changes.start()
    if not changes.is_there:
        say(f"odradek: there is no node {path} yet", is_remark=True)
    say(f"odradek: watching {path}", is_remark=True)
    try:
        yield changes
    finally:
        changes.stop()


def _print_change(change: TreeChange, *, as_json: bool) -> None:
    node = change.node
    if as_json:
        print_json({"event": change.event, "path": change.path, **(_fields(node) if node else {})})
        return
    words = [change.event, change.path]
    if node is not None:
        words += [f"version {node.version}", owner(node.owner), text(node.data).replace("\n", " ")]
    say("  ".join(filter(None, words)))


def _fields(node: Node) -> dict[str, object]:
    """Return a node for `--json`: `data` is text, or null with `data_base64`."""
    fields: dict[str, object] = {"version": node.version, "owner": node.owner, "created": node.created}
    try:
        return {**fields, "data": node.data.decode()}
    except UnicodeDecodeError:
        return {**fields, "data": None, "data_base64": node.data}
