"""Computes independent items on Spark's executors, such as a simulation's seeds.

Tasks return bytes, which the driver saves, so the executors need no common file system. Several jobs, of one task or a
few, are in flight, so that no core waits for the slowest task of a job.
"""

import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from odradek.model import UnavailableError
from odradek.spark.session import deferred_interrupts, local_session, quiet_calls, stop_session

T = TypeVar("T")

_JOBS: Final = 16
"""Limit of running jobs, besides one that waits for a core; with more cores, each job has more tasks."""
_POLL_S: Final = 0.25
_PYTHON_ERROR: Final = re.compile(r"^\w+(?:\.\w+)*Error: .+$", re.MULTILINE)
_SCHEMA: Final = pa.schema([("number", pa.int64()), ("data", pa.binary())])


@contextmanager
def jobs_session(name: str, master: str, settings: Mapping[str, str], log: Path) -> Iterator[Any]:
    """Yield a Spark session on `master`, with Spark keys `settings` and its output in the file `log`; stop it after.

    Raises `UnavailableError` if Spark does not start, also without Java, and `ConfigurationError` for invalid settings.
    """
    quiet_calls()
    try:
        spark = local_session(name, master=master, settings=settings, log=log)
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(f"Spark does not start on {master}: {_sentence(str(error))}") from error
    try:
        yield spark
    finally:
        stop_session(spark)


def compute_items(
    spark: Any, name: str, items: Iterable[T], compute: Callable[[T], bytes]
) -> Generator[tuple[T, bytes]]:
    """Yield each item with what `compute` returns for it on an executor, in the order in which jobs end.

    Ctrl-C and SIGTERM are deferred until the caller asks for the next item, which raises `KeyboardInterrupt`. Raises
    `UnavailableError` if Spark fails. A caller that may leave earlier must close the iterator, which cancels the jobs.
    """
    context = spark.sparkContext
    parallelism = int(context.defaultParallelism)
    tasks = -(-parallelism // _JOBS)
    most = -(-parallelism // tasks) + 1
    rest = iter(items)
    pending: set[Future[list[tuple[T, bytes]]]] = set()
    with deferred_interrupts() as check, _quiet(), ThreadPoolExecutor(most, name.replace(" ", "-")) as pool:
        try:
            while True:
                check()
                while len(pending) < most and (job := list(islice(rest, tasks))):
                    pending.add(pool.submit(_run_job, spark, name, job, compute))
                if not pending:
                    return
                done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except BaseException:
            with suppress(Py4JError, OSError):  # the JVM may have ended
                context.cancelJobGroup(name)
            raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide PySpark's warning about the installed pandas, which is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _run_job(spark: Any, name: str, job: Sequence[T], compute: Callable[[T], bytes]) -> list[tuple[T, bytes]]:
    """Run a Spark job with a task for each item."""

    def run(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for number in part.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"number": [number], "data": [compute(job[number])]}, schema=_SCHEMA)

    try:
        # Each thread has properties of its own in the JVM.
        spark.sparkContext.setJobGroup(name, name, interruptOnCancel=True)
        numbers = spark.range(0, len(job), 1, len(job))
        rows = numbers.mapInArrow(run, "number long, data binary").collect()
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(f"Spark has failed: {_sentence(str(error))}") from error
    return [(job[row.number], bytes(row.data)) for row in rows]


def _sentence(text: str) -> str:
    """Return the line of Spark's text with the Python error of a task, else the first line."""
    found = _PYTHON_ERROR.search(text)
    return found[0] if found else next(filter(None, map(str.strip, text.splitlines())), "Spark gave no reason")
