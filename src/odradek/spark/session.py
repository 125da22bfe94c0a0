"""A Spark on this machine, ready for the data source: which Java, how many threads, and the settings of a short life.

Whoever has a Spark already needs none of this: the data source works in any session whose Python has Odradek installed.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.spark.java import class_archive_options, find_java

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def local_session(
    app_name: str = "odradek",
    *,
    threads: int | None = None,
    short_lived: bool = False,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Start (or get) a `SparkSession` on `threads` threads, one per core by default.

    `short_lived` starts faster and runs slower: only the first of the JVM's two compilers. `settings` are Spark's own
    keys and win over the defaults. Raises `UnavailableError` if there is no Java.
    """
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        # PySpark warns, when this is imported later, of a pandas that is only there and that nobody here uses.
        warnings.simplefilter("ignore", FutureWarning)
        import pyspark.testing.utils  # noqa: F401

    threads = threads or _cores()
    java = find_java()
    # The gateway's launcher and Spark's Python workers read these; a value that somebody chose stands.
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    flags = ("-XX:+UseSerialGC", *(("-XX:TieredStopAtLevel=1",) if short_lived else ()))
    archive = class_archive_options(java, _find_spark_home(), flags)
    logging = f"-Dlog4j2.configurationFile=file:{_LOGGING}"
    defaults = {
        "spark.master": f"local[{threads}]",
        "spark.app.name": app_name,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join((*flags, *archive, logging)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "odradek-warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
    }
    builder = SparkSession.builder
    for key, value in (defaults | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _cores() -> int:
    """The cores that this process may use; macOS can't say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
