"""Directories of file sinks: which files were committed, and what a killed process left behind."""
