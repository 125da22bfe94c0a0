"""How PySpark finds the format `odradek`: it imports every module called `pyspark_*` and takes its `DefaultSource`.

That happens in every Spark job of an environment where Odradek is installed, unguarded. So this imports next to
nothing, and a broken or partial installation hides the format instead of breaking somebody else's job.
"""

import contextlib

with contextlib.suppress(Exception):
    from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
