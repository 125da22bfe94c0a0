"""The group coordinators of the `__consumer_offsets` partitions that this broker leads.

`group_coordinator` takes the handlers' requests, runs the state machine of `broker.groups.machine` on
`broker.coordinators`, and logs its events. `rebalance_journal` writes a record for each rebalance.
"""
