"""Partition assignors: pure functions from partition counts and subscriptions to an assignment.

`assign` takes plain dicts; `create_assignor` returns the object that a group's leader calls, by name, entry point or
import path. A class of your own inherits from `Assignor`.
"""

from odradek.assignors.custom import InvalidAssignmentError
from odradek.assignors.interface import (
    Assignment,
    Assignor,
    GroupSubscription,
    MemberSubscription,
    RebalanceProtocol,
    sorted_members,
)
from odradek.assignors.range_assignor import RangeAssignor
from odradek.assignors.registry import ASSIGNOR_NAMES, assign, create_assignor
from odradek.assignors.roundrobin import RoundRobinAssignor

__all__ = [
    "ASSIGNOR_NAMES",
    "Assignment",
    "Assignor",
    "GroupSubscription",
    "InvalidAssignmentError",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "assign",
    "create_assignor",
    "sorted_members",
]
