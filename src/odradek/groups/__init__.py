"""The group coordinator as a pure state machine: groups of both protocols and committed offsets (SPEC 6, 7).

`GroupCoordinatorMachine` is the machine of one `__consumer_offsets` partition. `classic` has the groups whose members
compute the assignment, `consumer` those of KIP-848, `mixed` their classic members and conversions, `offsets` what
groups committed, `rebalance_trace` what the journal says of a rebalance. `odradek.broker.coordinators` runs the
machine: logs, sockets and timers are there.
"""

from odradek.groups.classic.classic_group import ClassicGroup, GroupSettings
from odradek.groups.classic.states import TRANSITIONS, Event, State
from odradek.groups.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.groups.rebalance_trace import CauseKind, RebalanceCompleted
from odradek.groups.records import GroupMetadataRecord, GroupRecord, GroupRecordCodec, OffsetCommitRecord

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
