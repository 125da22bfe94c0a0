"""Directories of file sinks: removes files that a killed process left uncommitted, and merges small files."""
