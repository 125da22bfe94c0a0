"""The leader's and the follower's machines: high watermark, in-sync set, truncation by leader epoch.

Values and `now_ms` come in, decisions go out; logs, requests and timers are the broker's (`broker.replication`).
"""

from odradek.replication.follower import Divergence, divergence, truncation_offset
from odradek.replication.leader import IsrChange, LeaderReplication, RemoteReplica

__all__ = ["Divergence", "IsrChange", "LeaderReplication", "RemoteReplica", "divergence", "truncation_offset"]
