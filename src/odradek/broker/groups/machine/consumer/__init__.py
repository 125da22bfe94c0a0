"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members are reconciled one by one.

`consumer_groups` has the heartbeats and deadlines of all groups, `consumer_group` one group, `member` one member.
`heartbeat` handles requests: `membership` finds the member and checks its epoch, `group_update` computes the changes
with `subscriptions` (names and regular expressions) and `target_assignment`, `reconciliation` moves the member towards
its target. `coordinator_records` builds the records, `group_trace` the entries of the rebalance journal, and
`group_repair` completes groups whose records are lost. Log lines are written by `odradek.broker.groups`.
"""
