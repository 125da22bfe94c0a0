"""Changes the ACLs of resources in the metadata tree, on any broker.

Some changes and their notifications are one transaction of the tree. After a concurrent write, they are computed again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from odradek.broker.turns import HEAVY, cooperatively
from odradek.metadata import paths
from odradek.metadata.acl_nodes import decode_acls, encode_acls, encode_change
from odradek.metadata.store import BadVersion, Create, Delete, Node, NodeExists, NoNode, Operation, SetData, Store
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclBinding, AclEntry, ResourcePattern

AclChanges = Mapping[ResourcePattern, Callable[[frozenset[AclEntry]], frozenset[AclEntry]]]
"""Functions from the ACLs of a resource pattern to the new ones."""
LogChange = Callable[[str], None]
"""Logs what was changed, with the principal: `RequestContext.log_change`."""
_Entries: TypeAlias = frozenset[AclEntry]
_Change: TypeAlias = tuple[ResourcePattern, Callable[[_Entries], _Entries]]
_MOST_TOGETHER: Final = 64
"""Limit of patterns in one transaction, after each of which every broker goes over all ACLs."""
_BYTES_BY_WEIGHT: Final = 128
_OPERATION_BYTES: Final = 512
"""More than ZooKeeper needs for a change and its notification, without the ACLs and the name."""
_ATTEMPTS: Final = 10
"""Limit of attempts to write one change despite concurrent writes."""
_MOST_ENTRIES: Final = 10_000
_MOST_BYTES: Final = 1_000_000
"""Limits up to which ACLs are added to a pattern: ZooKeeper refuses larger nodes (`jute.maxbuffer`)."""
_MOST_NOTIFICATIONS: Final = 1000
"""More than these are deleted down to half. A broker that misses any reads all ACLs."""


async def write_acls(
    store: Store, changes: AclChanges, log_change: LogChange
) -> dict[ResourcePattern, frozenset[AclEntry]]:
    """Write the changes, and return the ACLs that were added or removed.

    If it raises, some of them may be written. `log_change` is called for each ACL as soon as its change is written.
    """
    changed: dict[ResourcePattern, frozenset[AclEntry]] = {}
    pairs = list(changes.items())
    for start in range(0, len(pairs), _MOST_TOGETHER):
        changed |= await _write(store, pairs[start : start + _MOST_TOGETHER], log_change)
        await _delete_old_notifications(store)
    return changed


async def _delete_old_notifications(store: Store) -> None:
    for root in paths.ACL_CHANGE_ROOTS:
        names = await store.children(root)
        if len(names) > _MOST_NOTIFICATIONS:
            with suppress(NoNode):  # another broker deletes them
                await store.multi([Delete(path=f"{root}/{name}") for name in names[: -_MOST_NOTIFICATIONS // 2]])


async def _write(store: Store, changes: Sequence[_Change], log_change: LogChange) -> dict[ResourcePattern, _Entries]:
    """Write changes in one transaction, or in several if their nodes are too large for one."""
    for _ in range(_ATTEMPTS):
        nodes = await store.get_many([paths.acl(pattern) for pattern, _ in changes])
        operations: list[Operation] = []
        size, results = 0, dict[ResourcePattern, tuple[_Entries, _Entries]]()
        async for (pattern, change), node in cooperatively(zip(changes, nodes, strict=True), _weight):
            path = paths.acl(pattern)
            before = frozenset(() if node is None else decode_acls(path, node.data))
            after = change(before)
            results[pattern] = before, after
            if after == before:
                continue
            _check_size(path, len(after) - len(before), len(after), 0)
            data = encode_acls(sorted(after))
            _check_size(path, len(after) - len(before), len(after), len(data))
            size += len(data) + 2 * len(path.encode()) + _OPERATION_BYTES
            if node is None:
                operations.append(Create(path=path, data=data))
            elif after:
                operations.append(SetData(path=path, data=data, version=node.version))
            else:
                operations.append(Delete(path=path, version=node.version))
            operations.append(Create(path=paths.acl_change(pattern), data=encode_change(pattern), sequence=True))
        if size > _MOST_BYTES and len(changes) > 1:
            half = len(changes) // 2
            first = await _write(store, changes[:half], log_change)
            return first | await _write(store, changes[half:], log_change)
        try:
            if operations:
                await store.multi(operations)
        except (BadVersion, NodeExists, NoNode):
            continue
        for pattern, (before, after) in results.items():
            for verb, entries in (("added", after - before), ("removed", before - after)):
                async for entry in cooperatively(sorted(entries)):
                    log_change(f"ACLs: {verb} {AclBinding(pattern=pattern, entry=entry)}")
        return {pattern: before ^ after for pattern, (before, after) in results.items()}
    path = paths.acl(changes[0][0])
    raise KafkaError(ErrorCode.request_timed_out, f"{path} is changed concurrently again and again")


def _weight(each: tuple[_Change, Node | None]) -> int:
    node = each[1]
    return HEAVY + (0 if node is None else len(node.data) // _BYTES_BY_WEIGHT)


def _check_size(path: str, added: int, entries: int, size: int) -> None:
    if added > 0 and (entries > _MOST_ENTRIES or size > _MOST_BYTES):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{path} would have {entries:,} ACLs; it has room for {_MOST_ENTRIES:,} in {_MOST_BYTES:,} bytes: "
            "use ACLs of all users (User:*), or of prefixed names",
        )
