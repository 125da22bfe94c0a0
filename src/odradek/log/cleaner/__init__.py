"""Compaction: which log is next, which of its records stay, and the segments that replace the old ones.

`log_cleaner` chooses the log, runs its compaction and swaps the segments in; `cleanable` measures how dirty a log is
and whether it is due. `offset_map` finds the last record of each key, `record_filter` (and `compiled_record_filter`)
drops the others, and `compaction` writes the new segments.
"""
