"""Computes the missing batches of a sweep on Spark.

Tasks return each batch as the bytes of its Parquet file; this process writes the files, so the executors need no common
file system. Several jobs, of one task or a few, are in flight, so that no core waits for the slowest task of a job.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from odradek.lab.case import LabError
from odradek.lab.sweep.results import Batch, Results
from odradek.lab.sweep.scenarios import encode
from odradek.lab.sweep.settings import Sweep
from odradek.runtime import SystemClock
from odradek.spark.session import deferred_interrupts, local_session

_JOBS: Final = 16
"""Limit of running jobs, besides one that waits for a core; with more cores, each job has more tasks."""
_POLL_S: Final = 0.25
_GROUP: Final = "odradek-lab-sweep"
_PYTHON_ERROR: Final = re.compile(r"^\w+(?:\.\w+)*Error: .+$", re.MULTILINE)
_SCHEMA: Final = pa.schema([("number", pa.int64()), ("data", pa.binary())])


def compute_batches(
    spark: Any, sweep: Sweep, batches: Sequence[Batch], results: Results, *, on_done: Callable[[int], None]
) -> None:
    """Compute and save `batches`; call `on_done` with the number of scenarios after each job is saved.

    Raises, after all jobs have ended, `LabError` if Spark fails, and `KeyboardInterrupt` for Ctrl-C and SIGTERM. Saved
    batches stay.
    """
    context = spark.sparkContext
    parallelism = int(context.defaultParallelism)
    tasks = -(-parallelism // _JOBS)
    jobs = iter([batches[start : start + tasks] for start in range(0, len(batches), tasks)])
    most = -(-parallelism // tasks) + 1
    pending: set[Future[int]] = set()
    with deferred_interrupts() as check, _quiet(), ThreadPoolExecutor(most, "odradek-sweep") as pool:
        try:
            while True:
                check()
                while len(pending) < most and (job := next(jobs, None)) is not None:
                    pending.add(pool.submit(_run_job, spark, sweep, job, results))
                if not pending:
                    return
                done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
                for future in done:
                    on_done(future.result())
        except BaseException:
            context.cancelJobGroup(_GROUP)
            raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide PySpark's warning about the installed pandas, which is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def sweep_session(master: str, settings: Mapping[str, str], log: Path) -> Any:
    """Return a Spark session on `master`, with Spark keys `settings` and its output in the file `log`.

    Raises `LabError` if Spark does not start, and `UnavailableError` without Java.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return local_session("odradek lab sweep", master=master, settings=settings, log=log)
    except (PySparkException, Py4JError) as error:
        raise LabError(f"Spark does not start on {master}: {_sentence(str(error))}") from error


def _run_job(spark: Any, sweep: Sweep, job: Sequence[Batch], results: Results) -> int:
    """Run a Spark job with a task for each batch, save the files and return the number of scenarios."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def compute(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = SystemClock()
        for part in parts:
            for number in part.column(0).to_pylist():
                batch = job[number]
                data = encode(sweep, batch.strategy, batch.first, batch.last, clock)
                yield pa.RecordBatch.from_pydict({"number": [number], "data": [data]}, schema=_SCHEMA)

    try:
        # Each thread has properties of its own in the JVM.
        spark.sparkContext.setJobGroup(_GROUP, "odradek lab sweep", interruptOnCancel=True)
        numbers = spark.range(0, len(job), 1, len(job))
        rows = numbers.mapInArrow(compute, "number long, data binary").collect()
    except (PySparkException, Py4JError) as error:
        raise LabError(f"Spark has failed: {_sentence(str(error))}") from error
    for row in rows:
        results.save(job[row.number], bytes(row.data))
    return sum(batch.last - batch.first for batch in job)


def _sentence(text: str) -> str:
    """Return the line of Spark's text with the Python error of a task, else the first line."""
    found = _PYTHON_ERROR.search(text)
    return found[0] if found else next(filter(None, map(str.strip, text.splitlines())), "Spark gave no reason")
