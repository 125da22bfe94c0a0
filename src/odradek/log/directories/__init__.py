"""A broker's data directories: `LogManager`, locks, loading at the start, logs that are missing or incomplete."""
