"""Iceberg tables that topics are written to, each batch once, by pyiceberg and without a JAR.

`machine` decides what a commit may do, `location` opens catalogs, `table` reads and commits a table's metadata,
`columns` fits its schema to a query, `data_files` writes Parquet. `spark.tables` is the sink, `odradek
table` the tool.
"""
