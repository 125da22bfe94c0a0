"""Registers the format `odradek`: PySpark imports every module called `pyspark_*` and takes its `DefaultSource`.

PySpark does so in every job where Odradek is installed, and catches no error. So this module imports little, and a
broken installation hides the format instead of breaking the job.
"""

import contextlib

with contextlib.suppress(Exception):
    from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
