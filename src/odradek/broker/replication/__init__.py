"""The partitions that this broker leads or follows; the rules are in `odradek.replication`.

`replica_manager` creates and removes them as the cluster's image says, and runs the periodic maintenance of their logs
(retention, flushes, checkpoints). A led partition is a `partition`, read by `partition_reader` and `delayed_fetch` and
written by `writer` (`full_disks` reports directories without room); `alter_partition_manager` shrinks and expands its
ISR by `alter_partition_requests` to the controller. A followed partition is a `follower`, and `replica_fetcher` sends
the Fetch requests for all of them, in sessions (`fetcher_session`). `offline_logs` and `damaged_logs` are replicas that
cannot be used, `stray_logs` logs of deleted replicas, `refused_appends` refused batches, `topic_log_configs` the
configuration of logs.
"""
