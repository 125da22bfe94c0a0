"""Who gets what: pure functions from partition counts and subscriptions to an assignment (SPEC 3).

`assign` takes plain dicts; `create_assignor` gives the object that a group's leader calls, by name or by import path.
An assignor keeps nothing between two calls: what members owned, and in which generation, is in their subscriptions.
"""

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, MemberSubscription, sorted_members
from odradek.assignors.range_assignor import RangeAssignor
from odradek.assignors.registry import ASSIGNOR_NAMES, assign, create_assignor
from odradek.assignors.roundrobin import RoundRobinAssignor

__all__ = [
    "ASSIGNOR_NAMES",
    "Assignment",
    "Assignor",
    "GroupSubscription",
    "MemberSubscription",
    "RangeAssignor",
    "RoundRobinAssignor",
    "assign",
    "create_assignor",
    "sorted_members",
]
