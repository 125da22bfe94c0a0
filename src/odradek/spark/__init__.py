"""The PySpark data source `odradek`: options and columns of Spark's own Kafka connector, without a JAR.

PySpark loads `source`. `options` parses a user's options, `settings` their Kafka keys, and `schema` defines the
columns. `reading` and `writing` run in the driver and in tasks, `value_columns` decodes values in queries, and `jobs`
runs independent items. `session` starts a local Spark, for which `local` finds Java and Python.
"""
