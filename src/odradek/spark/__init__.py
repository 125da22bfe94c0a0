"""The PySpark data source `odradek`: options and columns of Spark's own Kafka connector, without a JAR.

PySpark loads `source`. `options` parses a user's options, `settings` their Kafka keys, and `schema` defines the
columns. `reading` and `writing` have what the driver and the tasks do, `values` decodes Avro and Protobuf.
`session` starts a local Spark, for which `local` finds Java and Python.
"""
