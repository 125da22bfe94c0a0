"""A broker's metrics by Kafka's names, and the HTTP endpoint that exposes them.

Components count in plain integers of their own or of `counters`, without looking up names or labels. For each scrape,
`broker.observing` reads them into families of `catalog`, `exposition` renders the page and `http` sends it.
`prometheus_client` is imported only for that. A new metric is a counter in the component that counts, a family in
`catalog`, and a line in `broker.observing.observation`.
"""
