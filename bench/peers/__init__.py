"""Starts both sides of a comparison: brokers and clusters of Odradek and of a peer, each broker a local process.

`kafka_peer` starts Apache Kafka, `servers` starts `odradek serve` and librdkafka's mock cluster. `sides` has single
brokers and `clusters` several that can be stopped, killed and started again. `spark_connector` is Spark's own Kafka
connector; `maven` fetches the jars of peers.
"""
