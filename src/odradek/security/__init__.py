"""Principals, SASL mechanisms, the authorizer by ACLs, exposed listeners: values and rules only.

A listener without authentication needs an explicit flag unless its host is loopback (`is_loopback`).
"""

from odradek.security.acl_authorizer import AclAuthorizer, Decision, Reason
from odradek.security.acls import (
    ALL_ACLS,
    PATTERN_TYPES,
    RESOURCE_TYPES,
    AclBinding,
    AclEntry,
    AclFilter,
    AclPermissionType,
    Acls,
    by_kafka_name,
    by_number,
    kafka_name,
)
from odradek.security.authorizer import (
    ALLOW_ALL,
    CLUSTER_NAME,
    Action,
    AllowAllAuthorizer,
    AuthorizableRequestContext,
    AuthorizationResult,
    Authorizer,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.certificate_names import distinguished_name, written_as_java_does
from odradek.security.exposure import is_loopback
from odradek.security.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
    AclOperation,
)
from odradek.security.principal import ANONYMOUS, Principal, parse_principal, trimmed
from odradek.security.principal_mapping import principal_mapping

__all__ = [
    "ALLOW_ALL",
    "ALL_ACLS",
    "ANONYMOUS",
    "CLUSTER_NAME",
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "NOT_ASKED_FOR",
    "PATTERN_TYPES",
    "RESOURCE_TYPES",
    "TOPIC_OPERATIONS",
    "AclAuthorizer",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPermissionType",
    "Acls",
    "Action",
    "AllowAllAuthorizer",
    "AuthorizableRequestContext",
    "AuthorizationResult",
    "Authorizer",
    "Decision",
    "PatternType",
    "Principal",
    "Reason",
    "ResourcePattern",
    "ResourceType",
    "by_kafka_name",
    "by_number",
    "distinguished_name",
    "is_loopback",
    "kafka_name",
    "parse_principal",
    "principal_mapping",
    "trimmed",
    "written_as_java_does",
]
