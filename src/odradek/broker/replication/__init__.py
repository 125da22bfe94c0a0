"""The partitions that this broker leads or follows; the rules are in `odradek.replication`.

`replica_manager` creates and removes them as the cluster's image says, and runs the maintenance of their logs
(`log.directories.maintenance`). A led partition is a `partition`. A followed one is a `follower`, which consumers
may read, too; `reading` has what both have for readers. `replica_fetcher` sends the Fetch requests for all of them,
in sessions (`fetcher_session`). `writer` writes the appends of both, and `full_disks` reports directories without room.

ISR changes: `replication.leader` finds the followers that lag or have caught up, and proposes the change.
`alter_partition_manager` starts the checks for lag, submits proposals to the controller by `alter_partition_requests`,
and logs the ISR that results. The controller decides (`controller.alter_partition`), and `partition` applies the ISR
that it wrote. Brokers that die leave the ISR without a proposal (`controller.elections`).

`offline_logs` are replicas that cannot be used, `damaged_logs` those with damaged files, `stray_logs` logs of deleted
replicas, `refused_appends` batches for partitions that this broker does not lead yet, and `topic_log_configs` the
configurations of logs.
"""
