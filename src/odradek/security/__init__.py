"""Principals, the authorizer's interface, ACL operations and the exposure of listeners: values and rules only.

`ANONYMOUS` is the only principal so far, and `ALLOW_ALL` the only authorizer. Therefore a listener that is reachable
from other machines needs an explicit flag (`exposed_listeners`).
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
from odradek.security.exposure import exposed_listeners, is_loopback, unprotected_listeners
from odradek.security.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
    AclOperation,
)
from odradek.security.principal import ANONYMOUS, Principal

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
    "exposed_listeners",
    "is_loopback",
    "unprotected_listeners",
]
