"""A small Spark job in a process of its own: `python spark_job.py SIDE JOB BOOTSTRAP_SERVERS FOLDER JARS`.

Prints a JSON object: the seconds from the session's start to the job's end (`query`), and the memory of Python's
processes, shared pages divided among them (`memory`, MiB). SIDE is `odradek`, or `JVM` with a plain session of PySpark.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    side, job, servers, folder, jars = sys.argv[1:]
    spark = _session(side, jars)
    started = time.perf_counter()
    options = {"kafka.bootstrap.servers": servers, "subscribe": "jobs", "startingOffsets": "earliest"}
    if side == "odradek":
        source = "odradek"
    else:
        source, options = "kafka", options | {"kafka.fetch.max.wait.ms": "10"}
    if job == "count":
        spark.read.format(source).options(**options).load().count()
    else:
        rows = spark.readStream.format(source).options(**options).load()
        if job == "to Parquet":
            rows = rows.selectExpr("from_json(CAST(value AS STRING), 'id BIGINT, name STRING') AS v").select("v.*")
        output = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        to_files = job == "to Parquet"
        query = output.format("parquet").start(f"{folder}/out") if to_files else output.format("noop").start()
        query.awaitTermination()
    print(json.dumps({"query": time.perf_counter() - started, "memory": _memory_of_workers()}), flush=True)
    spark.stop()


def _session(side: str, jars: str) -> Any:
    if side == "odradek":
        from odradek.spark.session import local_session

        return local_session("job", threads=2)
    from pyspark.sql import SparkSession

    return SparkSession.builder.master("local[2]").config("spark.jars", jars).getOrCreate()


def _memory_of_workers() -> float:
    """Return the MiB of the job's Python processes, without this one."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            program = status.with_name("cmdline").read_bytes().partition(b"\0")[0]
            environment = status.with_name("environ").read_bytes()
            text = status.read_text()
        except OSError:
            continue
        is_worker = b"SPARK_JOB_OF_BENCH=" in environment and b"python" in program
        if is_worker and int(status.parent.name) != os.getpid():
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


if __name__ == "__main__":
    main()
