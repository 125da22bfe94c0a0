"""The pure part of a table's sink: marks in snapshots, whether a batch may be written, and the course of a commit."""
