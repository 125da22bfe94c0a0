"""Registers the format `odradek_iceberg`, as `pyspark_odradek` does `odradek`: PySpark takes one from each module."""

import contextlib

with contextlib.suppress(Exception):
    from odradek.spark.tables.source import OdradekIcebergDataSource as DefaultSource

__all__ = ["DefaultSource"]
