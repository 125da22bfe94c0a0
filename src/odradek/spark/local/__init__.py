"""The Java and the workers' Python of a local Spark, and the user's cache, from which both start fast."""
