"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members are reconciled one by one.

`consumer_groups` has the groups of a coordinator, `consumer_group` one group's durable state, `member` one member's.
`membership` finds the member of a request and checks its epoch; `heartbeat` decides on requests with `subscriptions`
(names and regular expressions) and `target_assignment`; `reconciliation` moves one member towards its target;
`coordinator_records` has the records. Only deadlines are volatile.
"""
