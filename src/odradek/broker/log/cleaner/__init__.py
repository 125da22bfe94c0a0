"""Log compaction: `log_cleaner` selects a log, `compaction` writes its new segments without superseded records."""
