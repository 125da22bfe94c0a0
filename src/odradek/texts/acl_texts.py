"""Principals, operations and resources as users write them, and which ACL decides on an action."""

from contextlib import suppress
from enum import IntEnum
from typing import Final

from msgspec import Struct

from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.model import ConfigurationError, KafkaError
from odradek.security import (
    CLUSTER_NAME,
    RESOURCE_TYPES,
    AclAuthorizer,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    Action,
    Decision,
    PatternType,
    Principal,
    Reason,
    ResourcePattern,
    ResourceType,
    by_kafka_name,
    parse_principal,
)

SUPER_USERS: Final = "super.users"
EVERYONE: Final = "allow.everyone.if.no.acl.found"
UNSEEN_KEYS: Final = (
    f"The brokers do not show {SUPER_USERS} and {EVERYONE}, so the answer ignores them: a super user may do everything"
)


class Explanation(Struct, frozen=True, kw_only=True):
    """The decision on an action, the ACLs of its resource, and whether the brokers show the authorizer's keys."""

    decision: Decision
    bindings: list[AclBinding]
    has_keys: bool

    def __str__(self) -> str:
        decision = self.decision
        return f"{'allowed' if decision.is_allowed else 'denied'}: {decision.binding or decision.reason.value}"

    @property
    def others(self) -> list[AclBinding]:
        """The resource's ACLs, if none of them decides."""
        return self.bindings if self.decision.reason is Reason.NO_MATCH else []


async def explain(
    admin: Admin, principal: Principal, operation: AclOperation, resource: ResourcePattern, host: str = ""
) -> Explanation:
    """Decide by the brokers' ACLs and keys, as they do. Raises `KafkaError` if they do not show the ACLs."""
    wanted = AclFilter(resource_type=resource.resource_type, name=resource.name, pattern_type=PatternType.MATCH)
    bindings, keys = await admin.describe_acls(wanted), await _keys(admin)
    acls: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
    for each in bindings:
        acls[each.pattern] = (*acls.get(each.pattern, ()), each.entry)
    names = [each.strip() for each in (keys.get(SUPER_USERS) or "").split(";") if each.strip()]
    authorizer = AclAuthorizer(
        super_users=frozenset(map(parse_principal, names)), allow_everyone=keys.get(EVERYONE) == "true"
    )
    authorizer.update(acls)
    decision = authorizer.decide(principal, host, Action(operation, resource))
    return Explanation(decision=decision, bindings=bindings, has_keys=bool(keys))


async def _keys(admin: Admin) -> dict[str, str | None]:
    """Return the configuration keys of the authorizer; none if the brokers do not show them."""
    with suppress(KafkaError):
        broker_id = (await admin.describe_cluster()).brokers[0].broker_id
        resource = ConfigResource(type=ConfigResourceType.BROKER, name=str(broker_id))
        entries = (await admin.describe_configs([resource]))[resource]
        return {each.name: each.value for each in entries if each.name in {SUPER_USERS, EVERYONE}}
    return {}


def principal_of(text: str) -> Principal:
    """Parse a principal, `TYPE:NAME`. Raises `ConfigurationError`."""
    try:
        return parse_principal(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def operation_of(text: str) -> AclOperation:
    """Parse Kafka's name of an operation, in any case. Raises `ConfigurationError`."""
    found = by_kafka_name(AclOperation, text.replace("-", "_"))
    if found is None or found <= AclOperation.ANY:
        raise ConfigurationError(f"{text!r} is not one of {names_of(AclOperation)}")
    return found


def resource_of(text: str) -> ResourcePattern:
    """Parse a resource, `TYPE:NAME` or `cluster`. Raises `ConfigurationError`."""
    type_name, _, name = text.partition(":")
    kind = by_kafka_name(ResourceType, type_name.replace("-", "_"))
    if kind is ResourceType.CLUSTER:
        name = name or CLUSTER_NAME
    if kind is None or kind not in RESOURCE_TYPES or not name:
        raise ConfigurationError(f"{text!r} is not TYPE:NAME with a type of {names_of(ResourceType)}")
    return ResourcePattern(kind, name)


def names_of(kind: type[IntEnum]) -> str:
    """List the values that users may write."""
    return ", ".join(each.name.lower().replace("_", "-") for each in kind if each > 1)
