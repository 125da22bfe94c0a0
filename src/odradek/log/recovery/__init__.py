"""Opening a log: which of its files count, what a crash may have damaged, and where it is truncated."""
