"""Consumer groups of the classic protocol and their committed offsets, as pure state machines.

`ClassicGroup` (join, sync, heartbeat, leave) and `Offsets` take requests, committed records and the time, and return
replies and records to append. Sockets, the log and timers are in `broker.groups`.
"""

from odradek.groups.classic import ClassicGroup
from odradek.groups.core import GroupSettings
from odradek.groups.members import protocols_size
from odradek.groups.messages import (
    NO_GENERATION,
    Append,
    Effect,
    JoinedMember,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceStarted,
    SyncReply,
    SyncRequest,
)
from odradek.groups.offsets import Offsets
from odradek.groups.playback import CoordinatorPlayback
from odradek.groups.states import TRANSITIONS, Event, State

__all__ = [
    "NO_GENERATION",
    "TRANSITIONS",
    "Append",
    "ClassicGroup",
    "CoordinatorPlayback",
    "Effect",
    "Event",
    "GroupSettings",
    "JoinReply",
    "JoinRequest",
    "JoinedMember",
    "LeaveReply",
    "LeaveRequest",
    "LeavingMember",
    "Offsets",
    "PendingMemberExpired",
    "PendingMembersOverdue",
    "RebalanceStarted",
    "State",
    "SyncReply",
    "SyncRequest",
    "protocols_size",
]
