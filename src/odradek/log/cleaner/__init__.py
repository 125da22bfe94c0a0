"""Compaction: which log is next, which of its records stay, and the segments that replace the old ones.

`log_cleaner` runs it, `cleanable` chooses the log, `offset_map` finds the last record of each key, `record_filter` (and
`compiled_record_filter`) drops the others, and `compaction` writes and swaps the segments.
"""
