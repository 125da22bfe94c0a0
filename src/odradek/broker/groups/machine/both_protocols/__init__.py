"""Groups that migrate between the protocols (KIP-848, "Migration"): classic members of consumer groups, conversions.

`classic_members` handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup in a consumer group; `migration` converts a
group when the first member of the consumer protocol joins or the last one leaves.
"""
