"""Reads from Kafka: batches, streams, and streams that are members of a consumer group.

On the driver, `planning` (pure) divides offsets among tasks; in a task, `scan` returns record batches as Arrow.
"""
