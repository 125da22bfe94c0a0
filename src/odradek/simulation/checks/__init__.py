"""Checks of a simulated cluster as a whole, beside those of each workload's history."""
