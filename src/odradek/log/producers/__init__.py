"""What a log knows of its idempotent producers and their transactions, and the snapshots of it."""
