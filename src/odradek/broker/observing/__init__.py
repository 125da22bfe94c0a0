"""Metrics and probes of a broker: `observation` reads all metrics, `monitor` serves them by HTTP.

The counters are attributes of the parts that count (`broker.groups`, `broker.replication`, …);
`odradek.metrics.catalog` names the metrics.
"""
