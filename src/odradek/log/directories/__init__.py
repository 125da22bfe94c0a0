"""A broker's data directories, with `LogManager` over all logs in them.

`directory_loading` opens logs at the start, `log_shutdown` closes them, `log_directories` handles failed disks,
`missing_logs`, `lost_records` and `unopened_logs` what is absent, incomplete or unusable. `maintenance` does one pass
of retention, flushes and removals; `broker.replication.partitions` calls it periodically. `checkpoint_contents` is
what the checkpoint files (`log.checkpoints`) contain, `log_checkpoints` decides when they are written,
`checkpoint_writer` writes.
"""
