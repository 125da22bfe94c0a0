"""The group coordinator as a pure state machine: groups of both protocols and committed offsets (SPEC 6, 7).

`GroupCoordinatorMachine` is the machine of one `__consumer_offsets` partition; `classic_group` has a classic group's
state, and `join`, `sync` and `rebalance` its rules; `consumer` has the groups of KIP-848. `odradek.broker.coordinators`
runs the machine: logs, sockets and timers are there.
"""

from odradek.groups.classic_group import ClassicGroup, GroupSettings
from odradek.groups.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.groups.rebalance_trace import CauseKind, RebalanceCompleted
from odradek.groups.records import GroupMetadataRecord, GroupRecord, GroupRecordCodec, OffsetCommitRecord
from odradek.groups.states import TRANSITIONS, Event, State

__all__ = [
    "TRANSITIONS",
    "CauseKind",
    "ClassicGroup",
    "Event",
    "GroupCoordinatorMachine",
    "GroupMetadataRecord",
    "GroupRecord",
    "GroupRecordCodec",
    "GroupSettings",
    "OffsetCommitRecord",
    "OffsetSettings",
    "RebalanceCompleted",
    "State",
]
