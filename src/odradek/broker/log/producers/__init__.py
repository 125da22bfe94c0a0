"""The idempotent producers and transactions of a log, and their snapshots."""
