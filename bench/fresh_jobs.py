"""Small Spark jobs as fresh processes: seconds, CPU, the first query of a session, memory of Python's processes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bench.measure import Aim, Row, rounds

JOBS: Final = ("to Parquet", "count", "availableNow")
_RECORDS: Final = 10_000
_CLIENTS: Final = Path(__file__).parent / "clients"
_OURS: Final = "odradek"
_THEIRS: Final = "JVM, 10 ms"
_TIMEOUT_S: Final = 600.0
_AIMS: Final = {"seconds": Aim(1.0, at_most=True), "cpu": Aim(1.0, at_most=True), "query": Aim(1.2, at_most=True)}
_WHAT: Final = {
    "seconds": ("seconds in all", "s"),
    "cpu": ("CPU in all", "s"),
    "query": ("first query of the session", "s"),
    "memory": ("memory of Python's processes", "MiB"),
}
_PIPELINE: Final = """\
kind = "offline"
name = "job"
checkpoint = "{folder}/checkpoint"
sql = "SELECT id, name FROM jobs"
[source]
bootstrap_servers = "{servers}"
[streams.jobs]
topics = ["jobs"]
value = "id BIGINT, name STRING"
[sink]
format = "parquet"
path = "{folder}/out"
"""


def fill(bootstrap_servers: str) -> None:
    """Create the topic `jobs` with 10,000 small JSON values in four partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("jobs", 4, 1)])["jobs"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
    for number in range(_RECORDS):
        producer.produce("jobs", json.dumps({"id": number, "name": f"name {number}"}), partition=number % 4)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records within two minutes")


def fresh_job(job: str, servers: str, jars: str, count: int, say: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Return the rows of a job of `JOBS`, medians of `count` rounds.

    Beside both connectors, it is run with an empty cache (the class archive is made) and, without the warm process, by
    an ordinary Python.
    """
    with tempfile.TemporaryDirectory(prefix="fresh-jobs-") as folder:
        ordinary = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        run = partial(_run, job, servers, jars, Path(folder))
        sides = {
            _OURS: partial(run, _OURS, {"ODRADEK_CACHE": f"{folder}/cache"}),
            _THEIRS: partial(run, "JVM", {}),
            "odradek, no warm process": partial(run, _OURS, {"ODRADEK_CACHE": f"{folder}/cache"} | ordinary),
        }
        say("the first use, which makes the class archive")
        first = run(_OURS, {"ODRADEK_CACHE": f"{folder}/cache"})
        figures = {**rounds(count, sides, say=say), "odradek, empty cache": first}
    found = []
    for name, (what, unit) in _WHAT.items():
        of_sides = {side: by[name] for side, by in figures.items() if name in by}
        if _OURS in of_sides:
            to = None if name == "memory" else _THEIRS
            found.append(Row(what=f"{job}: {what}", unit=unit, figures=of_sides, of=_OURS, to=to, aim=_AIMS.get(name)))
    return found


def _run(
    job: str, servers: str, jars: str, folder: Path, side: str, environment: Mapping[str, str]
) -> dict[str, float]:
    """Run the job once, and return its figures by name."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        if job == "to Parquet" and side == _OURS:
            file = Path(own) / "job.toml"
            file.write_text(_PIPELINE.format(folder=own, servers=servers))
            command = [sys.executable, "-m", "odradek", "pipeline", "run", str(file), "--threads", "2", "--every", "0"]
        else:
            command = [sys.executable, str(_CLIENTS / "spark_job.py"), side, job, servers, own, jars]
        done = subprocess.run(
            [sys.executable, str(_CLIENTS / "whole_job.py"), *command],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the job failed: {done.stderr[-2000:]}")
        figures: dict[str, float] = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                figures |= json.loads(line)
        if job == "to Parquet" and not list(Path(own, "out").rglob("*.parquet")):
            raise RuntimeError("the job wrote no file")
        # The memory of a plain Spark's Python is nothing: no worker runs.
        return figures if side == _OURS else {name: each for name, each in figures.items() if name != "memory"}
