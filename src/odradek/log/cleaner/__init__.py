"""Compaction: which log is next, which of its records stay, and the segments that take the old ones' place."""
