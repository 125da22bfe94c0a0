"""The partitions that this broker leads or follows; the rules are in `odradek.replication`.

`partitions` creates and removes them as the cluster's image says, and runs the periodic maintenance of their logs
(retention, flushes, checkpoints). A led partition is a `partition`, read by `partition_reader` and `delayed_fetch` and
written by `writer` (`outages` reports full disks); `in_sync_sets` shrinks and expands its ISR by `isr_requests` to the
controller. A followed partition is a `follower`, and `replica_fetcher` sends the Fetch requests for all of them, in
sessions (`fetcher_session`). `offline_logs` and `damaged_logs` are replicas that cannot be used, `strays` logs of
deleted replicas, `refused_appends` refused batches, `topic_log_configs` the configuration of logs.
"""
