"""Writes to Kafka: tasks send Arrow record batches. Also dead letters: records that a query cannot use."""
