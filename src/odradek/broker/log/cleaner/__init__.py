"""Log compaction: selects the next log, drops superseded records, and replaces the segments.

`log_cleaner` selects the log, runs its compaction and swaps the segments in; `cleanable` measures how dirty a log is
and decides whether to compact it. `offset_map` has the last offset of each key, `record_filter` (and
`compiled_record_filter`) drops the other records, and `compaction` writes the new segments. `cleaner_workers` runs
the slices of compactions on the disk's background thread.
"""
