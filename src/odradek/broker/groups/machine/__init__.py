"""The group coordinator as a pure state machine: groups of both protocols and committed offsets (SPEC 6, 7).

`GroupCoordinatorMachine` is the state machine of one `__consumer_offsets` partition. `broker.coordinators` runs it with
logs, sockets and timers. `group_registry` has the groups by id and the interface that every kind of group has,
`classic` groups of the classic protocol, `consumer` those of KIP-848, `both_protocols` classic members of consumer
groups and conversions, `offsets` committed offsets, `rebalance_trace` the rebalance journal.
"""

from odradek.broker.groups.machine.classic.classic_group import ClassicGroup, GroupSettings
from odradek.broker.groups.machine.classic.states import TRANSITIONS, Event, State
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.rebalance_trace import CauseKind, RebalanceCompleted
from odradek.broker.groups.machine.records import (
    GroupMetadataRecord,
    GroupRecord,
    GroupRecordCodec,
    OffsetCommitRecord,
)

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
