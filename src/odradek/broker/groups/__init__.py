"""The coordinator of the groups whose partitions of `__consumer_offsets` this broker leads (SPEC 6).

`group_coordinator` finds the shard of a request's group. A `group_shard` has the groups of one partition: machines of
`odradek.groups`, and the futures and timers that these lack. What they want recorded goes through `group_log`.
"""
