"""The transaction coordinator of a broker: its topic, configuration and log lines, and the markers that it sends.

The state machine is in `machine`, the runtime in `broker.coordinators`. `transaction_coordinator` takes the handlers'
requests, `transaction_markers` sends markers to the leaders of partitions, and `marker_writes` appends them there.
`partition_verification` verifies appends by `add_partitions_to_txn_manager`.
"""
