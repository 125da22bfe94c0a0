"""Changes the ACLs of resources in the metadata tree, on any broker.

A change and its notification are one transaction of the tree. After a concurrent write, a change is computed again.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from odradek.broker.turns import cooperatively
from odradek.metadata import paths
from odradek.metadata.acl_nodes import decode_acls, encode_acls, encode_change
from odradek.metadata.store import BadVersion, Create, Delete, NodeExists, NoNode, Operation, SetData, Store
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclBinding, AclEntry, ResourcePattern

AclChanges = Mapping[ResourcePattern, Callable[[frozenset[AclEntry]], frozenset[AclEntry]]]
"""Functions from the ACLs of a resource pattern to the new ones."""
LogChange = Callable[[str], None]
"""Logs what was changed, with the principal: `RequestContext.log_change`."""
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

    If it raises, earlier changes are written. `log_change` is called for each ACL as soon as its change is written.
    """
    changed: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for number, (pattern, change) in enumerate(changes.items(), 1):
        changed[pattern] = await _write(store, pattern, change, log_change)
        if not number % _MOST_NOTIFICATIONS or number == len(changes):
            await _delete_old_notifications(store)
    return changed


async def _delete_old_notifications(store: Store) -> None:
    for root in paths.ACL_CHANGE_ROOTS:
        names = await store.children(root)
        if len(names) > _MOST_NOTIFICATIONS:
            with suppress(NoNode):  # another broker deletes them
                await store.multi([Delete(path=f"{root}/{name}") for name in names[: -_MOST_NOTIFICATIONS // 2]])


async def _write(
    store: Store,
    pattern: ResourcePattern,
    change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
    log_change: LogChange,
) -> frozenset[AclEntry]:
    path = paths.acl(pattern)
    for _ in range(_ATTEMPTS):
        node = await store.get(path)
        before = frozenset(() if node is None else decode_acls(path, node.data))
        after = change(before)
        if after == before:
            return frozenset()
        _check_size(path, len(after) - len(before), len(after), 0)
        data = encode_acls(sorted(after))
        _check_size(path, len(after) - len(before), len(after), len(data))
        write: Operation
        if node is None:
            write = Create(path=path, data=data)
        elif after:
            write = SetData(path=path, data=data, version=node.version)
        else:
            write = Delete(path=path, version=node.version)
        notification = Create(path=paths.acl_change(pattern), data=encode_change(pattern), sequence=True)
        try:
            await store.multi([write, notification])
        except (BadVersion, NodeExists, NoNode):
            continue
        for verb, entries in (("added", after - before), ("removed", before - after)):
            async for entry in cooperatively(sorted(entries)):
                log_change(f"ACLs: {verb} {AclBinding(pattern=pattern, entry=entry)}")
        return after ^ before
    raise KafkaError(ErrorCode.request_timed_out, f"{path} is changed concurrently again and again")


def _check_size(path: str, added: int, entries: int, size: int) -> None:
    if added > 0 and (entries > _MOST_ENTRIES or size > _MOST_BYTES):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{path} would have {entries:,} ACLs; it has room for {_MOST_ENTRIES:,} in {_MOST_BYTES:,} bytes: "
            "use ACLs of all users (User:*), or of prefixed names",
        )
