"""Faults by kind, and the schedule that draws them from a seed, plays them and ends them."""
