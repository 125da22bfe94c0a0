"""The PySpark data source `odradek`: options and columns of Spark's own Kafka connector, without a JAR.

`options` parses a user's options and `planning` turns offsets into tasks; both are pure. PySpark loads `source`. On
the driver, `batch_reader`, `stream_reader` and `writers` get offsets from `lookup`; `filters` are the conditions that
Spark pushes to a batch. In the tasks, `scan` turns record batches into Arrow, `sink` turns Arrow into record batches,
and `worker_clients` keeps the connections for the next task. `schema` defines the columns; `java` and `session` start
a local Spark.
"""
