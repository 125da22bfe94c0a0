"""ACLs and their filters as fields of CreateAcls, DescribeAcls and DeleteAcls."""

from typing import Any

from odradek.model import ErrorCode, KafkaError
from odradek.security import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    by_number,
)


def pattern_fields(pattern: ResourcePattern) -> dict[str, Any]:
    """Return a resource pattern as fields; CreateAcls has another name for its type."""
    kind, name, pattern_type = pattern
    return {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": pattern_type,
        "resource_pattern_type": pattern_type,
    }


def entry_fields(entry: AclEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission_type,
    }


def filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def decoded_binding(resource: Any, entry: Any) -> AclBinding:
    """Return the ACL that `entry` has for `resource`; unknown numbers become UNKNOWN."""
    number = getattr(resource, "pattern_type", None) or resource.resource_pattern_type
    kind, pattern_type = by_number(ResourceType, resource.resource_type), by_number(PatternType, number)
    return AclBinding(
        pattern=ResourcePattern(kind, resource.resource_name, pattern_type),
        entry=AclEntry(
            principal=entry.principal,
            host=entry.host,
            operation=by_number(AclOperation, entry.operation),
            permission_type=by_number(AclPermissionType, entry.permission_type),
        ),
    )


def decoded_filter(message: Any) -> AclFilter:
    """Return a request's filter. Raise `KafkaError` INVALID_REQUEST for unknown numbers."""
    found = AclFilter(
        resource_type=by_number(ResourceType, message.resource_type_filter),
        name=message.resource_name_filter,
        pattern_type=by_number(PatternType, message.pattern_type_filter),
        principal=message.principal_filter,
        host=message.host_filter,
        operation=by_number(AclOperation, message.operation),
        permission_type=by_number(AclPermissionType, message.permission_type),
    )
    if 0 in (found.resource_type, found.pattern_type, found.operation, found.permission_type):
        raise KafkaError(ErrorCode.invalid_request, f"the filter has an unknown part: {found}")
    return found
