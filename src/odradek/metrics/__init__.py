"""The broker's metrics, with Kafka's names, and the HTTP server that exposes them.

Components count in plain integers, their own or those of `counters`. For each scrape, `broker.observing` reads them
into families of `catalog`, `exposition` renders the page (with `prometheus_client`) and `http` sends it. A new metric
is a counter in the component that counts, an entry in `catalog`, and a line in `broker.observing.observation`.
"""
