"""The state machines of replication: a leader's high watermark and ISR, a follower's truncation by leader epoch.

`leader` has the followers' offsets, advances the high watermark and proposes ISR changes, on which the controller
decides (`broker.controller.machine.alter_partition`). `divergence` finds where two logs diverge, and what the follower
truncates. Both are pure logic: logs, requests and timers are in `broker.replication`.
"""

from odradek.broker.replication.machine.divergence import Divergence, divergence, truncation_offset
from odradek.broker.replication.machine.leader import IsrChange, LeaderReplication, RemoteReplica

__all__ = ["Divergence", "IsrChange", "LeaderReplication", "RemoteReplica", "divergence", "truncation_offset"]
