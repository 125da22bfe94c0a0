"""The authorizer that decides by ACLs, as Kafka's `AclAuthorizer` and `StandardAuthorizer` do.

```
super user                                          allowed
the ACLs were not read yet                          denied
DENY on *, the name, or a prefix of it              denied
ALLOW on *, the name, or a prefix of it             allowed
no ACL at all for *, the name, or a prefix of it    allow.everyone.if.no.acl.found
else                                                denied
```
Allowing READ, WRITE, DELETE or ALTER allows DESCRIBE; allowing ALTER_CONFIGS allows DESCRIBE_CONFIGS. The cost of a
decision depends on the resource's patterns and on how many lengths the prefixes have, not on the number of ACLs.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.security.acls import (
    ANY_PRINCIPAL,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclPermissionType,
    Acls,
)
from odradek.security.authorizer import (
    Action,
    AuthorizableRequestContext,
    AuthorizationResult,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.operations import AclOperation
from odradek.security.principal import Principal

_MOST_REMEMBERED: Final = 1000
_IMPLIED: Final = {
    **dict.fromkeys(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER), AclOperation.DESCRIBE
    ),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}


class Reason(Enum):
    """Why an action is allowed or denied."""

    SUPER_USER = "the principal is a super user"
    NOT_READ = "the ACLs were not read yet"
    DENIED = "an ACL denies it"
    ALLOWED = "an ACL allows it"
    NO_ACLS = "no ACL is for this resource, and allow.everyone.if.no.acl.found decides"
    NO_MATCH = "none of the resource's ACLs allows it"


class Decision(NamedTuple):
    """The decision on one action, and the ACL that decides, if one does."""

    is_allowed: bool
    reason: Reason
    binding: AclBinding | None = None


class _Rule(NamedTuple):
    """An ACL. `bits` has a bit for each operation that it allows or denies."""

    denies: bool
    bits: int
    binding: AclBinding


_Rules = Mapping[tuple[str, str], tuple[_Rule, ...]]
"""The ACLs of one resource pattern by (principal, host); a key has at most one for each operation and permission."""


class _TypeRules:
    """The ACLs of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.lengths: list[int] = []
        """The different lengths of prefixes, sorted."""

    def of(self, name: str) -> Iterator[_Rules]:
        """Yield the rules of each pattern that is for the resource."""
        literal, prefixed = self.literal, self.prefixed
        for key in (WILDCARD, name):
            if (found := literal.get(key)) is not None:
                yield found
        for length in self.lengths:
            if length > len(name):
                return
            if (found := prefixed.get(name[:length])) is not None:
                yield found


class AclAuthorizer:
    """Decides by ACLs, until the first `update` with none: super users may do everything, others nothing."""

    def __init__(self, *, super_users: frozenset[Principal] = frozenset(), allow_everyone: bool = False) -> None:
        self.version = 0
        self.super_users = super_users
        self._no_acls = Decision(allow_everyone, Reason.NO_ACLS)
        self._acls: Acls | None = None
        self._types: list[_TypeRules] | None = None
        self._any: dict[tuple[object, ...], AuthorizationResult] = {}
        """Decisions of `authorize_by_resource_type`, which looks at all ACLs of a type."""

    def update(self, acls: Acls | None) -> None:
        """Replace the ACLs; None if they are not known."""
        known, before = self._acls or {}, self._types
        types = [_TypeRules() for _ in ResourceType]
        for pattern, entries in (acls or {}).items():
            of_type = types[pattern.resource_type]
            place = of_type.literal if pattern.pattern_type is PatternType.LITERAL else of_type.prefixed
            if before is not None and known.get(pattern) is entries:
                old = before[pattern.resource_type]
                place[pattern.name] = (old.literal if place is of_type.literal else old.prefixed)[pattern.name]
            else:
                place[pattern.name] = _rules(pattern, entries)
        for each in types:
            each.lengths = sorted({len(prefix) for prefix in each.prefixed})
        self._acls, self._types = acls, None if acls is None else types
        self._any.clear()
        self.version += 1

    def decide(self, principal: Principal, host: str, action: Action) -> Decision:
        """Return the decision on an action, with the reason for it."""
        if principal in self.super_users:
            return Decision(is_allowed=True, reason=Reason.SUPER_USER)
        if self._types is None:
            return Decision(is_allowed=False, reason=Reason.NOT_READ)
        operation, (resource_type, name, _) = action
        clients, has_acls, allowing = _clients(principal, host), False, None
        for rules in self._types[resource_type].of(name):
            has_acls = True
            for client in clients:
                for rule in rules.get(client, ()):
                    if rule.bits >> operation & 1:
                        if rule.denies:
                            return Decision(is_allowed=False, reason=Reason.DENIED, binding=rule.binding)
                        allowing = allowing or rule
        if allowing is not None:
            return Decision(is_allowed=True, reason=Reason.ALLOWED, binding=allowing.binding)
        return Decision(is_allowed=False, reason=Reason.NO_MATCH) if has_acls else self._no_acls

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> Sequence[AuthorizationResult]:
        principal, host = context.principal, context.client_host
        return [
            AuthorizationResult.ALLOWED if self.decide(principal, host, each).is_allowed else AuthorizationResult.DENIED
            for each in actions
        ]

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        key = (context.principal, context.client_host, operation, resource_type)
        found = self._any.get(key)
        if found is None:
            if len(self._any) >= _MOST_REMEMBERED:
                self._any.clear()
            is_allowed = self._allows_any(*key)
            found = self._any[key] = AuthorizationResult.ALLOWED if is_allowed else AuthorizationResult.DENIED
        return found

    def _allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        if principal in self.super_users:
            return True
        if self._types is None:
            return False
        of_type, clients = self._types[resource_type], _clients(principal, host)
        names: dict[bool, set[str]] = {False: set(), True: set()}
        prefixes: dict[bool, set[str]] = {False: set(), True: set()}
        """The names and prefixes on which an ACL allows (False) or denies (True) the operation."""
        for found, patterns in ((names, of_type.literal), (prefixes, of_type.prefixed)):
            for name, rules in patterns.items():
                for client in clients:
                    for rule in rules.get(client, ()):
                        if rule.bits >> operation & 1:
                            found[rule.denies].add(name)
        if WILDCARD in names[True]:
            return False
        denied = _Prefixes(prefixes[True])
        allowed = (*(names[False] - names[True]), *prefixes[False])
        return self._no_acls.is_allowed or any(not denied.cover(name) for name in allowed)


class _Prefixes:
    """A set of prefixes; whether one of them is a prefix of a name takes a binary search."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._sorted: list[str] = []
        """Without prefixes that begin with another one: only the last that is not after a name can be its prefix."""
        for each in sorted(prefixes):
            if not self._sorted or not each.startswith(self._sorted[-1]):
                self._sorted.append(each)

    def cover(self, name: str) -> bool:
        place = bisect_right(self._sorted, name)
        return place > 0 and name.startswith(self._sorted[place - 1])


def _clients(principal: Principal, host: str) -> tuple[tuple[str, str], ...]:
    """Return the principals and hosts whose ACLs are for a client."""
    own = str(principal)
    return (own, host), (own, WILDCARD), (ANY_PRINCIPAL, host), (ANY_PRINCIPAL, WILDCARD)


def _rules(pattern: ResourcePattern, entries: tuple[AclEntry, ...]) -> _Rules:
    rules: dict[tuple[str, str], tuple[_Rule, ...]] = {}
    for entry in entries:
        denies = entry.permission_type is not AclPermissionType.ALLOW
        bits = -1 if entry.operation is AclOperation.ALL else 1 << entry.operation
        if not denies and entry.operation in _IMPLIED:
            bits |= 1 << _IMPLIED[entry.operation]
        client = entry.principal, _address(entry.host)
        rules[client] = (*rules.get(client, ()), _Rule(denies, bits, AclBinding(pattern=pattern, entry=entry)))
    return rules


def _address(host: str) -> str:
    """Return an address as sockets write it: Java writes `0:0:0:0:0:0:0:1` for `::1`."""
    if host == WILDCARD:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        return host
