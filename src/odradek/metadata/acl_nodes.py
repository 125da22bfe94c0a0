"""The nodes of ACLs in the metadata tree, in Kafka's format, and the watch that reads those that change.

```
/kafka-acl/{Type}/{name}                          the ACLs of a literal pattern, as JSON
/kafka-acl-extended/prefixed/{Type}/{name}        the ACLs of a prefixed pattern
/kafka-acl-changes/acl_changes_{number}           a literal pattern whose ACLs were changed: TYPE:name
/kafka-acl-extended-changes/acl_changes_{number}  a prefixed one, as JSON
```
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError, Fields
from odradek.metadata.reading import BrokenNodes, read_nodes
from odradek.metadata.store import Node, Store, Watch
from odradek.security import (
    PATTERN_TYPES,
    RESOURCE_TYPES,
    AclEntry,
    AclOperation,
    AclPermissionType,
    Acls,
    PatternType,
    ResourcePattern,
    ResourceType,
    by_kafka_name,
    kafka_name,
)

_NUMBER: Final = re.compile("acl_changes_([0-9]{1,10})")
_NOTHING_ALLOWED: Final = (
    AclEntry(principal="User:*", operation=AclOperation.ALL, permission_type=AclPermissionType.DENY),
)
"""The ACLs of a node that was never valid."""


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Encode the ACLs of one resource pattern in Kafka's version 1."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": kafka_name(each.permission_type),
            "operation": kafka_name(each.operation),
            "host": each.host,
        }
        for each in entries
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":")).encode()


def decode_acls(path: str, data: bytes) -> tuple[AclEntry, ...]:
    """Decode the ACLs of one resource pattern; a node without data has none."""
    return tuple(dict.fromkeys(map(_entry, Fields(path, data).objects("acls")))) if data else ()


def _entry(fields: Fields) -> AclEntry:
    operation = by_kafka_name(AclOperation, fields.text("operation"))
    permission_type = by_kafka_name(AclPermissionType, fields.text("permissionType"))
    if operation is None or operation <= AclOperation.ANY:
        raise fields.broken("operation", "an operation")
    if permission_type is None or permission_type <= AclPermissionType.ANY:
        raise fields.broken("permissionType", "Allow or Deny")
    return AclEntry(
        principal=fields.text("principal"),
        host=fields.text("host"),
        operation=operation,
        permission_type=permission_type,
    )


def encode_change(pattern: ResourcePattern) -> bytes:
    kind, name, pattern_type = pattern
    if pattern_type is PatternType.LITERAL:
        return f"{kind.name}:{name}".encode()
    return json.dumps({"version": 1, "resourceType": kind.name, "name": name, "patternType": "PREFIXED"}).encode()


def decode_change(path: str, data: bytes) -> ResourcePattern:
    if path.startswith(f"{paths.ACL_CHANGES}/"):
        pattern_type = PatternType.LITERAL
        type_name, _, name = data.decode(errors="replace").partition(":")
    else:
        fields = Fields(path, data)
        pattern_type, type_name, name = PatternType.PREFIXED, fields.text("resourceType"), fields.text("name")
    kind = by_kafka_name(ResourceType, type_name)
    if kind not in RESOURCE_TYPES or not name:
        raise BrokenNodeError(path, "it names no resource")
    return ResourcePattern(kind, name, pattern_type)


class AclNodes:
    """The ACLs of all resources. `mark` is called when a notification was written."""

    def __init__(self, store: Store, broken: BrokenNodes, mark: Callable[[], None]) -> None:
        self.has_changed = True
        self._store = store
        self._broken = broken
        self._mark = mark
        self._watches: list[Watch] = []
        self._known: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._seen: dict[str, int] | None = None
        """The number of the last notification below each node; None if everything has to be read."""

    def start(self) -> None:
        self._watches = [self._store.watch_children(root, self._mark_changed) for root in paths.ACL_CHANGE_ROOTS]

    def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def mark_changed(self) -> None:
        """Make the owner read again."""
        self.has_changed = True

    def _mark_changed(self) -> None:
        self.mark_changed()
        self._mark()

    async def read(self) -> Acls:
        """Return all ACLs. Only the changed ones are read, or all, the first time and if notifications are missing.

        A broken node keeps its last valid ACLs; if it was never valid, nobody may do anything on its resource.
        """
        self.has_changed = False
        seen, self._seen = self._seen, None  # until everything was read
        names = {root: await self._store.children(root) for root in paths.ACL_CHANGE_ROOTS}
        numbers = {
            root: {int(match[1]): f"{root}/{name}" for name in some if (match := _NUMBER.fullmatch(name))}
            for root, some in names.items()
        }
        last = {root: max(some, default=-1) for root, some in numbers.items()}
        changed = None if seen is None else await self._changed(seen, numbers)
        patterns = await self._all_patterns() if changed is None else changed
        nodes = read_nodes(self._store, patterns, paths.acl)
        read = {each: self._entries(each, node) async for each, _, node in nodes}
        acls = read if changed is None else self._known | read
        # Lists that are equal stay the same objects, for the sake of the authorizer.
        self._known = {
            each: old if (old := self._known.get(each)) == entries and old is not None else entries
            for each, entries in acls.items()
            if entries
        }
        self._seen = last if seen is None or changed is None else {root: max(last[root], seen[root]) for root in last}
        return self._known

    async def _changed(self, seen: dict[str, int], numbers: dict[str, dict[int, str]]) -> list[ResourcePattern] | None:
        """Return the patterns of new notifications; None if some are missing or broken."""
        where: list[str] = []
        for root, some in numbers.items():
            new = sorted(number for number in some if number > seen[root])
            if (new and min(some) > seen[root] + 1) or (some and max(some) < seen[root]):
                return None
            where += [some[number] for number in new]
        patterns: dict[ResourcePattern, None] = {}
        async for path, _, node in read_nodes(self._store, where, lambda path: path):
            if node is None:
                return None
            try:
                patterns[decode_change(path, node.data)] = None
            except BrokenNodeError as error:
                self._broken.report(error, node)
                return None
        return list(patterns)

    async def _all_patterns(self) -> list[ResourcePattern]:
        return [
            ResourcePattern(kind, name, pattern_type)
            for pattern_type in PATTERN_TYPES
            for kind in RESOURCE_TYPES
            for name in await self._store.children(paths.acls(kind, pattern_type))
        ]

    def _entries(self, pattern: ResourcePattern, node: Node | None) -> tuple[AclEntry, ...]:
        if node is None:
            return ()
        try:
            return decode_acls(paths.acl(pattern), node.data)
        except BrokenNodeError as error:
            self._broken.report(error, node)
            return self._known.get(pattern, _NOTHING_ALLOWED)
