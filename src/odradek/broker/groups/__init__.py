"""The group coordinators of the `__consumer_offsets` partitions that this broker leads, and the rebalance journal.

`broker.coordinators` runs the state machine of `broker.groups.machine`.
"""
