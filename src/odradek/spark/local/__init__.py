"""Finds Java and the workers' Python for a local Spark, and caches what makes both start fast."""
