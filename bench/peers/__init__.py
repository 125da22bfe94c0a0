"""Both sides of a comparison: brokers and clusters of ours and of the peer, each broker a process on loopback.

`kafka_peer` is Apache Kafka, `servers` has `odradek serve` and librdkafka's mock cluster, `sides` single brokers and
`clusters` several that can be stopped, killed and started again. `spark_connector` is Spark's own Kafka connector;
`maven` fetches the jars of peers.
"""
