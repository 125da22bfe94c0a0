"""Principals, SASL mechanisms, the authorizer's interface, ACL operations, exposed listeners: values and rules only.

A listener without authentication that is reachable from other machines needs an explicit flag (`exposed_listeners`).
"""

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
from odradek.security.exposure import exposed_listeners, is_loopback
from odradek.security.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
    AclOperation,
)
from odradek.security.principal import ANONYMOUS, Principal, distinguished_name

__all__ = [
    "ALLOW_ALL",
    "ANONYMOUS",
    "CLUSTER_NAME",
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "NOT_ASKED_FOR",
    "TOPIC_OPERATIONS",
    "AclOperation",
    "Action",
    "AllowAllAuthorizer",
    "AuthorizableRequestContext",
    "AuthorizationResult",
    "Authorizer",
    "PatternType",
    "Principal",
    "ResourcePattern",
    "ResourceType",
    "distinguished_name",
    "exposed_listeners",
    "is_loopback",
]
