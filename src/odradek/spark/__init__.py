"""The PySpark data source `odradek`: the JVM Kafka connector's options and columns, without a JAR.

`options` types what the user wrote and `planning` turns offsets into tasks; both are pure. `source` is what PySpark
loads: `batch_reader`, `stream_reader` and `writers` ask `lookup` for offsets on the driver, and in the tasks `scan`
turns fetched record batches into Arrow and `sink` turns Arrow into record batches. `java` and `session` start a local
Spark that needs nothing installed.
"""
