"""Groups: who is a member, in which generation, with which assignment, and the offsets under a group's name.

Pure machines: `ClassicGroup` (join, sync, heartbeat, leave) and `Offsets`. Requests, commits of records and time come
in, replies and records go out; the sockets, the log and the timers are the coordinator's, `broker.groups`.
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
