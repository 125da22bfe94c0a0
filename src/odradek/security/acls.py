"""ACLs as values: entries on resource patterns, filters, and Kafka's names for their parts (KIP-140, KIP-290)."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final, TypeVar

from msgspec import Struct

from odradek.model import ErrorCode, KafkaError
from odradek.security.authorizer import CLUSTER_NAME, PatternType, ResourcePattern, ResourceType
from odradek.security.operations import AclOperation
from odradek.security.principal import parse_principal

E = TypeVar("E", bound=IntEnum)
WILDCARD: Final = "*"
"""The name of the literal pattern for all resources of a type, and the host for all hosts."""
ANY_PRINCIPAL: Final = "User:*"
RESOURCE_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)
"""The types of resources that have ACLs."""
PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)


class AclPermissionType(IntEnum):
    """Whether an ACL allows or denies, by its number on the wire."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclEntry(Struct, frozen=True, kw_only=True, order=True):
    """One ACL of a resource pattern: whether a principal may do an operation from a host."""

    principal: str
    host: str = WILDCARD
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW


Acls = Mapping[ResourcePattern, tuple[AclEntry, ...]]
"""The ACLs of each resource pattern that has any."""


class AclBinding(Struct, frozen=True, kw_only=True, order=True):
    """An ACL and its resource pattern."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        entry, (kind, name, pattern_type) = self.entry, self.pattern
        return (
            f"{kafka_name(entry.permission_type)} {entry.principal} {kafka_name(entry.operation)} from {entry.host} "
            f"on {kafka_name(kind)}:{pattern_type.name}:{name}"
        )

    def check(self) -> None:
        """Raise `KafkaError` INVALID_REQUEST for an ACL that cannot be created."""
        kind, name, pattern_type = self.pattern
        entry, problem = self.entry, ""
        if kind not in RESOURCE_TYPES or pattern_type not in PATTERN_TYPES:
            problem = f"an ACL is on a literal or prefixed name of a resource type, not {kind.name} {pattern_type.name}"
        elif entry.operation <= AclOperation.ANY or entry.permission_type <= AclPermissionType.ANY:
            problem = f"{entry.operation.name} {entry.permission_type.name} is no operation with ALLOW or DENY"
        elif not name:
            problem = "the resource name is empty"
        elif kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
            problem = f"the only name of a CLUSTER resource is {CLUSTER_NAME}, not {name}"
        elif "/" in name or "\0" in name or name in {".", ".."}:
            problem = f"the resource name {name!r} cannot be a node of the metadata tree"
        elif not entry.host:
            problem = "the host is empty; * is every host"
        if problem:
            raise KafkaError(ErrorCode.invalid_request, problem)
        try:
            parse_principal(entry.principal)
        except ValueError as error:
            raise KafkaError(ErrorCode.invalid_request, str(error)) from None


class AclFilter(Struct, frozen=True, kw_only=True):
    """A filter of ACLs; ANY and None match everything. MATCH finds the patterns that apply to the resource `name`."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether the filter is for this pattern's ACLs."""
        kind, name, pattern_type = pattern
        if self.resource_type not in (ResourceType.ANY, kind):
            return False
        if self.pattern_type is PatternType.MATCH:
            wanted = self.name
            if wanted is None:
                return True
            return wanted.startswith(name) if pattern_type is PatternType.PREFIXED else name in (wanted, WILDCARD)
        return self.pattern_type in (PatternType.ANY, pattern_type) and self.name in (None, name)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Return whether the filter is for this entry, on a pattern that it is for."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


ALL_ACLS: Final = AclFilter()


@lru_cache(typed=True)  # members of two kinds with one number are equal
def kafka_name(value: IntEnum) -> str:
    """Return a value's name as in Kafka's tools and its tree: `CLUSTER_ACTION` is `ClusterAction`."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def by_kafka_name(kind: type[E], text: str) -> E | None:
    """Return the value of that name, in any case, with or without underscores; None if there is none."""
    return _by_plain_name(kind).get(_plain(text))


@cache
def _by_plain_name(kind: type[E]) -> Mapping[str, E]:
    return {_plain(each.name): each for each in kind}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def by_number(kind: type[E], number: int) -> E:
    """Return the value with that number on the wire; UNKNOWN for other numbers."""
    return kind(number) if number in kind._value2member_map_ else kind(0)
