"""A Spark on this machine, ready for the data source: which Java, how many threads, and the settings of a short life.

Whoever has a Spark already needs none of this: the data source works in any session whose Python has Odradek installed.
"""

import asyncio
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from odradek.spark.java import class_archive_options, find_java

T = TypeVar("T")

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def local_session(
    app_name: str = "odradek",
    *,
    threads: int | None = None,
    short_lived: bool = False,
    keep_classes: bool = True,
    memory: str = "1g",
    log: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Start a `SparkSession` on `threads` threads, one per core by default; the running one, if there is one.

    `short_lived` starts faster and runs slower: only the first of the JVM's two compilers. `keep_classes` lets the JVM
    leave its class archive for the next start, which takes it some ten seconds at its exit, once. `log` is a file for
    what the JVM and its Python workers print; it goes to this process's stderr otherwise. `settings` are Spark's own
    keys and win over the defaults. Raises `UnavailableError` if there is no Java.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    with warnings.catch_warnings():
        # PySpark warns, when this is imported later, of a pandas that is only there and that nobody here uses.
        warnings.simplefilter("ignore", FutureWarning)
        import pyspark.testing.utils  # noqa: F401
    java = find_java()
    # The gateway's launcher and Spark's Python workers read these; a value that somebody chose stands.
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    flags = ("-XX:+UseSerialGC", *(("-XX:TieredStopAtLevel=1",) if short_lived else ()))
    archive = class_archive_options(java, _find_spark_home(), flags, make=keep_classes)
    defaults = _defaults(threads or _cores()) | {
        "spark.app.name": app_name,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join((*flags, *archive, f"-Dlog4j2.configurationFile=file:{_LOGGING}")),
    }
    conf = SparkConf().setAll((defaults | dict(settings or {})).items())
    with open(log, "ab") if log is not None else nullcontext() as file:
        output = {"stdout": file, "stderr": file} if file is not None else {}
        gateway = launch_gateway(conf, popen_kwargs=output)
    interrupt = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=conf, gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler calls into the JVM, whatever call Ctrl-C came into the middle of.
        signal.signal(signal.SIGINT, interrupt)
    return SparkSession(context)


def stop_session(spark: Any) -> None:
    """End Spark and its JVM, and return when both are gone; another session may be started then."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway
    # A JVM that is gone already, or does not listen any more, ends no worse than one that is asked.
    with suppress(Py4JError):
        spark.stop()
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    if process is not None:
        # It watches its stdin for the end of its parent.
        process.stdin.close()
        process.wait()


class _Interrupts:
    """The signals that `deferred_interrupts` holds back, and the wait that they cancel."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.wait: asyncio.Task[Any] | None = None

    def on_signal(self, number: int, frame: object) -> None:
        self.came.append(number)
        if self.wait is not None:
            self.wait.get_loop().call_soon_threadsafe(self.wait.cancel)

    def check(self) -> None:
        if self.came:
            self.came.clear()
            raise KeyboardInterrupt


_interrupts: _Interrupts | None = None
"""Those of the main thread, inside of `deferred_interrupts`."""


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C and SIGTERM until the block calls what it is given, which raises `KeyboardInterrupt` then.

    A call into the JVM that is broken off in the middle takes py4j's connection with it, and with that the means to
    stop the queries in order. `run_interruptible` does not wait for the block. Outside of the main thread, which gets
    no signals, nothing changes.
    """
    global _interrupts
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    outer, _interrupts = _interrupts, _Interrupts()
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, _interrupts.on_signal) for number in numbers]
    try:
        yield _interrupts.check
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
        _interrupts = outer


def run_interruptible(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on `loop`; inside of `deferred_interrupts`, a signal cancels it: raises `KeyboardInterrupt`."""
    interrupts = _interrupts
    if interrupts is None or threading.current_thread() is not threading.main_thread():
        return loop.run_until_complete(work)
    interrupts.wait = task = loop.create_task(work)
    try:
        if interrupts.came:
            task.cancel()
        return loop.run_until_complete(task)
    except asyncio.CancelledError:
        interrupts.check()
        raise
    finally:
        interrupts.wait = None


def _defaults(threads: int) -> dict[str, str]:
    return {
        "spark.master": f"local[{threads}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # What other readers of Parquet take for a moment in UTC; Spark's own default is a format of Hive's.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "odradek-warehouse"),
    }


def _cores() -> int:
    """The cores that this process may use; macOS can't say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
