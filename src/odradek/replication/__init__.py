"""The state machines of replication: a leader's high watermark and ISR, a follower's truncation by leader epoch.

Values and `now_ms` come in, decisions go out; logs, requests and timers are in `broker.replication`.
"""

from odradek.replication.follower import Divergence, divergence, truncation_offset
from odradek.replication.leader import IsrChange, LeaderReplication, RemoteReplica

__all__ = ["Divergence", "IsrChange", "LeaderReplication", "RemoteReplica", "divergence", "truncation_offset"]
