"""Groups on the way from one protocol to the other (KIP-848, "Migration"): classic members in consumer groups.

`classic_members` answers JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of a consumer group; `migration`
converts a group as a whole, with the first member of the consumer protocol or when the last one is gone.
"""
