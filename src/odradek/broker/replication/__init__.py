"""The partitions that this broker leads or follows: logs, fetchers, ISR changes.

The rules of replication are in `broker.replication.machine`. `replica_manager` creates and removes partitions by the
cluster's image, and runs the maintenance of their logs (`broker.log.directories.maintenance`). `partition` is a
partition that this broker leads, `follower` one that it follows; `reading` reads both for consumers and followers.
`replica_fetcher` sends the Fetch requests of all followers, in sessions (`protocol.messages.fetch_session`).

ISR changes: `broker.replication.machine.leader` finds the followers that lag or have caught up, and proposes the
change. `alter_partition_manager` starts the checks for lag, submits proposals to the controller by
`alter_partition_requests`, and logs the resulting ISR. The controller decides
(`broker.controller.machine.alter_partition`), and `partition` applies the ISR that it wrote. Dead brokers leave the ISR
without a proposal (`broker.controller.machine.elections`).

`offline_logs` are replicas that cannot be used, `damaged_logs` those with damaged files, `stray_logs` logs of deleted
replicas, `refused_appends` batches for partitions that this broker does not lead yet.
"""
