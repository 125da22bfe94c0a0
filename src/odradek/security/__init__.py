"""Principals, ACL operations and the exposure of listeners: values and rules only.

`ANONYMOUS` is the only principal so far, and it is authorized for everything. Therefore a listener that is reachable
from other machines needs an explicit flag (`exposed_listeners`).
"""

from odradek.security.exposure import exposed_listeners, is_loopback, unprotected_listeners
from odradek.security.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS, Operation
from odradek.security.principal import ANONYMOUS, Principal

__all__ = [
    "ANONYMOUS",
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "NOT_ASKED_FOR",
    "TOPIC_OPERATIONS",
    "Operation",
    "Principal",
    "exposed_listeners",
    "is_loopback",
    "unprotected_listeners",
]
