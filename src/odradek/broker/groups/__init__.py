"""The group coordinator of the `__consumer_offsets` partitions that this broker leads.

`group_coordinator` maps a request's group to its shard. A `group_coordinator_shard` holds the groups of one partition:
the state machines of `odradek.groups`, their timers and the futures of waiting requests. `group_log` reads and appends
records.
"""
