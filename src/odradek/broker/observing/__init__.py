"""Metrics and probes of a broker: `observation` reads all metrics, `monitor` serves them by HTTP.

Parts count in plain integers, their own or those of `broker.counters`. For each scrape, `observation` reads them into
families of `catalog`, `exposition` renders the page (with `prometheus_client`) and `http` sends it. A new metric is a
counter in the part that counts, an entry in `catalog`, and a line in `observation`.
"""
