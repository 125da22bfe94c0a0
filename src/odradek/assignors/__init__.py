"""Partition assignors: pure functions from partition counts and subscriptions to an assignment.

`assign` takes plain dicts; `create_assignor` returns the object that a group's leader calls, by name or import path.
Assignors keep no state: the owned partitions and their generation are in the subscriptions.
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
