"""Groups: who is a member, in which generation, with which assignment, and the offsets under a group's name.

Pure machines: `ClassicGroup` (join, sync, heartbeat, leave) and `Offsets`. Requests, commits of records and time come
in, replies and records go out; the sockets, the log and the timers are the coordinator's, `broker.groups`.
"""

from odradek.groups.classic import ClassicGroup
from odradek.groups.core import GroupSettings
from odradek.groups.messages import (
    NO_GENERATION,
    Append,
    Effect,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    LeaveRequest,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceBegan,
    SyncReply,
    SyncRequest,
)
from odradek.groups.offsets import Offsets
from odradek.groups.replay import Replay
from odradek.groups.roster import protocols_size
from odradek.groups.states import TRANSITIONS, Event, State

__all__ = [
    "NO_GENERATION",
    "TRANSITIONS",
    "Append",
    "ClassicGroup",
    "Effect",
    "Event",
    "GroupSettings",
    "JoinReply",
    "JoinRequest",
    "JoinedMember",
    "LeaveReply",
    "LeaveRequest",
    "Leaver",
    "Offsets",
    "PendingMemberExpired",
    "PendingMembersOverdue",
    "RebalanceBegan",
    "Replay",
    "State",
    "SyncReply",
    "SyncRequest",
    "protocols_size",
]
