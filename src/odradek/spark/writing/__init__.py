"""Writes to Kafka: tasks send Arrow record batches; rows that cannot be written become dead letters."""
