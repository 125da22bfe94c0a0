"""Opening a log: loading its files, and after a crash, checking what may be damaged and truncating the log.

`log_loader` opens a log: it loads segments, leader epochs and producers, and rebuilds missing or invalid indexes of
finished, synced segments. `segment_recovery` checks a segment that may not be synced, rebuilds its indexes, and
truncates it at the first invalid batch; `log_loader` removes the segments behind it. `segment_damage` is for open logs:
the segments in which a reader suspects damage, and their check (run by `broker.replication.damaged_logs`).
"""
