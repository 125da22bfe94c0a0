"""Who a client is, what it may do, and where nobody needs to ask. Values and rules only.

There is one principal so far, `ANONYMOUS`, and it may do everything; what keeps strangers out until then is that a
listener beyond the machine must be asked for by name (`exposed_listeners`).
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
