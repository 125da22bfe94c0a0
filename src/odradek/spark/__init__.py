"""The PySpark data source `odradek`: options and columns of Spark's own Kafka connector, without a JAR.

PySpark loads `source`; `reading` and `writing` run in the driver and in tasks. `session` starts a local Spark.
"""
