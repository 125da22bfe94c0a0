"""Metrics and probes: parts count in plain integers, rows of `catalog` read them, and `monitor` serves them by HTTP.

Metrics that share a walk over logs, partitions or groups are in `observation`.
"""
