"""The operations on a tree by ZooKeeper's rules, for the memory and SQLite stores.

`apply` runs operations against a `Tree` inside a transaction and returns the changed nodes; if it raises, the caller
rolls the transaction back. The owner of an ephemeral node is a session's number, which is never 0.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from odradek.metadata.paths import parent
from odradek.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    StoreError,
)

ROOT: Final = "/"
PERSISTENT: Final = 0
"""The owner of a persistent node."""


class Record(NamedTuple):
    """A stored node; `next_sequence` is the number of its next sequential child."""

    data: bytes
    version: int
    owner: int
    created: int
    next_sequence: int


class Change(NamedTuple):
    """A changed node; with `existence` it was created or deleted, which also fires its parent's child watches."""

    path: str
    existence: bool


class Tree(Protocol):
    """Nodes by path, inside a transaction."""

    def find(self, path: str) -> Record | None: ...

    def save(self, path: str, record: Record) -> None:
        """Write a node, replacing an existing one."""

    def remove(self, path: str) -> None: ...

    def has_children(self, path: str) -> bool: ...


def check_path(path: str) -> str:
    """Return `path`, or raise `StoreError` if it is not a valid path."""
    parts = path.split("/")[1:] if path.startswith("/") else [""]
    if path != ROOT and ("\0" in path or any(part in {"", ".", ".."} for part in parts)):
        raise StoreError(path, f"{path!r} is not a path of a metadata tree")
    return path


def apply(
    tree: Tree, operations: Sequence[Operation], *, session: int, transaction: int
) -> tuple[list[Result], list[Change]]:
    """Run all operations; new nodes get `transaction` as their `created`.

    Raises the `StoreError` of the first failed operation; the caller rolls back the earlier ones.
    """
    results: list[Result] = []
    changes: list[Change] = []
    for operation in operations:
        check_path(operation.path)
        match operation:
            case Create():
                path = _create(tree, operation, session=session, transaction=transaction)
                results.append(path)
                changes.append(Change(path, existence=True))
            case SetData():
                record = _existing(tree, operation.path, operation.version)
                tree.save(operation.path, record._replace(data=bytes(operation.data), version=record.version + 1))
                results.append(record.version + 1)
                changes.append(Change(operation.path, existence=False))
            case Delete():
                _existing(tree, operation.path, operation.version)
                if operation.path == ROOT or tree.has_children(operation.path):
                    raise NotEmpty(operation.path)
                tree.remove(operation.path)
                results.append(None)
                changes.append(Change(operation.path, existence=True))
            case Check():
                _existing(tree, operation.path, operation.version)
                results.append(None)
    return results, changes


def _create(tree: Tree, operation: Create, *, session: int, transaction: int) -> str:
    path = operation.path
    above = parent(path)
    holder = tree.find(above)
    if holder is None:
        raise NoNode(above)
    if holder.owner != PERSISTENT:
        raise NoChildrenForEphemerals(above)
    if operation.sequence:
        path = f"{path}{holder.next_sequence:010d}"
        tree.save(above, holder._replace(next_sequence=holder.next_sequence + 1))
    if tree.find(path) is not None:
        raise NodeExists(path)
    owner = session if operation.ephemeral else PERSISTENT
    tree.save(path, Record(data=bytes(operation.data), version=0, owner=owner, created=transaction, next_sequence=0))
    return path


def _existing(tree: Tree, path: str, version: int) -> Record:
    record = tree.find(path)
    if record is None:
        raise NoNode(path)
    if version not in {ANY_VERSION, record.version}:
        raise BadVersion(path, version, record.version)
    return record
