"""The view of the metadata tree: one node with its value in words, and its children. It changes nothing."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from odradek.metadata import paths
from odradek.metadata.store import Node, NoNode
from odradek.page.lists import listing
from odradek.page.view import Page, PageRequest, View
from odradek.texts import node_texts


class ChildRow(Struct, frozen=True, kw_only=True):
    """A child of the node; `node` is None for one that was deleted meanwhile."""

    path: str
    name: str
    node: Node | None = None

    @property
    def owner(self) -> str:
        return "deleted" if self.node is None else node_texts.owner(self.node.owner)


async def tree(asked: PageRequest) -> Mapping[str, Any] | None:
    """Return the node at the address's `path`, by default the root; None if the page has no tree."""
    store = asked.tree()
    if store is None:
        return None
    from odradek.stores.semantics import check_path  # imported here: most pages show no tree

    path = check_path(asked.query.get("path", "/") or "/")
    node = await store.get(path)
    if node is None:
        raise NoNode(path)
    rows = [ChildRow(path=paths.child(path, name), name=name) for name in await store.children(path)]
    keys = {"name": lambda row: (not row.name.isdecimal(), len(row.name) if row.name.isdecimal() else 0, row.name)}
    children = listing(asked, rows, keys, text=lambda row: row.name, default="name")
    nodes = await store.get_many(row.path for row in children.rows)
    shown = [replace(row, node=each) for row, each in zip(children.rows, nodes, strict=True)]
    return {
        "path": path,
        "above": _above(path),
        "sentence": node_texts.sentence(path, node.data),
        "node": node,
        "owner": node_texts.owner(node.owner),
        "written_ms": node_texts.written_ms(node.data),
        "value": node_texts.pretty_without_secrets(path, node.data),
        "children": replace(children, rows=shown),
    }


def _above(path: str) -> tuple[tuple[str, str], ...]:
    """Return the path and the name of each node above one, the root first."""
    found: list[tuple[str, str]] = []
    while path != "/":
        path = paths.parent(path)
        found.insert(0, (path, paths.name_of(path) or "/"))
    return tuple(found)


VIEW = View(
    title="Metadata tree",
    path="/metadata",
    pages=(Page(path="/metadata", template="tree.html", data=tree, live=("state", "children")),),
)
