"""The state of idempotent producers and their transactions, and its snapshots."""
