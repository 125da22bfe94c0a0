"""What a broker counts about itself, by Kafka's names, and how that is read.

Whoever works counts, in plain integers of its own or of `counters`; nothing looks up a name or a label to do so. When
somebody asks, `broker.observing` reads them all into families of `catalog`, `exposition` makes a page of them
and `http` answers with it. `prometheus_client` is imported for that page only.
"""
