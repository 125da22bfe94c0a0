"""Compaction: which log is next, which of its records stay, and the segments that replace the old ones."""
