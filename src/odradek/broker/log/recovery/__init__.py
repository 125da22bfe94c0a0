"""Opening a log: loading its files and, after a crash, checking unsynced segments and truncating the log.

`log_loader` loads segments, leader epochs and producers, and rebuilds missing or invalid indexes of finished, synced
segments. `segment_recovery` checks a segment that may not be synced, rebuilds its indexes, and truncates it at the
first invalid batch; `log_loader` removes later segments. `segment_damage` is for open logs: segments with signs of
damage, and their check (run by `broker.replication.damaged_logs`).
"""
