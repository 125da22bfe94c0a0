"""Partition assignors: range, roundrobin, sticky, cooperative-sticky, uniform, and custom ones.

`assign` takes plain dicts; `create_assignor` returns an assignor by name, entry point or import path. Custom classes
inherit from `Assignor`.
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
from odradek.assignors.registry import ASSIGNOR_NAMES, KAFKA_CLASSES, assign, create_assignor
from odradek.assignors.roundrobin import RoundRobinAssignor

__all__ = [
    "ASSIGNOR_NAMES",
    "KAFKA_CLASSES",
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
