"""Starts and stops Spark sessions whose driver is this process, and defers Ctrl-C during calls into the JVM.

An existing Spark needs none of this: the data source works in any session whose Python has Odradek installed.
"""

import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from odradek.clients.blocking.loop_thread import loop_thread
from odradek.model import UnavailableError, packages_of
from odradek.model.hidden_package import hidden_package
from odradek.spark.connect import stop_connect
from odradek.spark.local.java import class_archive_options, find_java
from odradek.spark.local.launcher import FOR_TABLES
from odradek.spark.local.worker_python import choose_python, cluster_python, start_warm_python, worker_python
from odradek.spark.master import FIRST_BATCH, SHUFFLE_PARTITIONS, check_master_answers, check_memory, local_threads

T = TypeVar("T")

CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINT_FILES_OF_A_DISK: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # For a checkpoint on a local disk Spark's default starts about twenty processes in a batch; this one starts none.
    CHECKPOINT_FILES: CHECKPOINT_FILES_OF_A_DISK,
}
_DAEMON: Final = {"spark.python.daemon.module": "odradek.spark.worker_daemon"}
_PUSHDOWN: Final = {"spark.sql.python.filterPushdown.enabled": "true"}
"""Conditions on partition, offset and timestamp shorten what the source reads."""
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_EXECUTOR_SECONDS: Final = 10.0
"""The longest wait for a cluster's first executor."""

_log = logging.getLogger("odradek.spark")


def local_session(
    app_name: str = "odradek",
    *,
    master: str | None = None,
    threads: int | None = None,
    short_lived: bool = False,
    keep_classes: bool = True,
    memory: str = "1g",
    log: Path | None = None,
    settings: Mapping[str, str] | None = None,
    for_tables: bool = False,
) -> Any:
    """Return the active `SparkSession`, or start one on `threads` threads (by default one per core).

    With a `master` other than `local[…]` (`spark://HOST:PORT`, `yarn`, `k8s://URL`), this process is the driver of an
    application on that cluster. With `short_lived` the JVM uses only the first of its two compilers: it starts faster
    and runs slower. With `keep_classes` the JVM writes a missing class archive at its exit, which takes about ten
    seconds and speeds up later starts. `log` is a file for the output of the JVM and its Python workers (default: this
    process's stderr). `settings` are Spark keys that override the defaults. `for_tables` lets Python workers import the
    sink of tables once. Raise `UnavailableError` without Java or if Spark does not start, and `ConfigurationError` for
    an invalid master or memory, or without the extra `spark`.
    """
    with packages_of("spark", "Spark sessions"):
        from pyspark import SparkConf
        from pyspark.find_spark_home import _find_spark_home
        from pyspark.sql import SparkSession

    settings = dict(settings or {})
    master = settings.get("spark.master") or master or f"local[{threads or _cores()}]"
    check_memory(settings.get("spark.driver.memory", memory))
    local = local_threads(master, _cores())
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # PySpark's first call into the JVM imports this module, which imports pandas only to see whether it is installed.
    with hidden_package("pandas"):
        import pyspark.testing.utils  # noqa: F401
    check_master_answers(master)
    java = find_java()
    is_local = master.startswith("local")
    # The gateway's launcher and Spark's Python workers read these.
    os.environ |= {"JAVA_HOME": str(java.home), FOR_TABLES: "1" if for_tables else ""}
    # Workers on other machines do not have this user's cache.
    python = worker_python() if is_local else cluster_python()
    # Containers and nodes of YARN and Kubernetes have a Python of their own.
    has_this_python = is_local or master.startswith("spark://")
    is_ours = choose_python("PYSPARK_PYTHON", python if has_this_python else None) and is_local
    # Spark starts data sources by this one, on the executors, too.
    choose_python("PYSPARK_DRIVER_PYTHON", python if is_local else os.environ.get("PYSPARK_PYTHON", python))
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    flags = ("-XX:+UseSerialGC", *(("-XX:TieredStopAtLevel=1",) if short_lived else ()))
    archive = class_archive_options(java, _find_spark_home(), flags, make=keep_classes)
    defaults = _defaults(local, is_local=is_local) | {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join((*flags, *archive, f"-Dlog4j2.configurationFile=file:{_LOGGING}")),
    }
    if is_ours:
        # A Python that the user chose may not have this module.
        defaults |= _DAEMON
    conf = SparkConf().setAll((defaults | settings).items())
    # PySpark's own handler of Ctrl-C, which this removes, calls into the JVM, even if Ctrl-C interrupts such a call. A
    # JVM that starts when its driver stops waiting for it would never end.
    with deferred_interrupts() as check:
        context = _start_context(conf, log, check, is_ours=is_ours)
        if local is None and not conf.contains(SHUFFLE_PARTITIONS):
            _fit_shuffle_partitions(context, master, check)
        return SparkSession(context)


def settings_for_other_sessions(*, is_local: bool) -> dict[str, str]:
    """Return the settings for sessions that `local_session` does not start; `is_local`: checkpoints are on a disk."""
    files = {CHECKPOINT_FILES: CHECKPOINT_FILES_OF_A_DISK} if is_local else {}
    return {**_DAEMON, **_PUSHDOWN, **FIRST_BATCH, **files}


def quiet_calls() -> None:
    """Log no failed or interrupted call into the JVM at length: the one line of its error is enough."""
    for name in ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_call)  # py4j uses the root logger, too


def _is_no_call(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("while sending command.")


def _start_context(conf: Any, log: Path | None, check: Callable[[], None], *, is_ours: bool) -> Any:
    """Start the JVM and its `SparkContext`. Raise `UnavailableError`, after the JVM's end, if one of them fails.

    `check` raises `KeyboardInterrupt` after a signal, which may have ended the JVM, too. `is_ours`: workers start by
    our launcher.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    with open(log, "ab") if log is not None else nullcontext() as file:
        output = {"stdout": file, "stderr": file} if file is not None else {}
        try:
            gateway = launch_gateway(conf, popen_kwargs=output)
        except PySparkException as error:
            check()
            raise UnavailableError(f"Spark's JVM did not start: see its output{f' in {log}' if log else ''}") from error
    try:
        check()
        if is_ours and gateway.proc is not None:  # else `spark-submit` has started this process
            start_warm_python(gateway.proc.pid)
        context = SparkContext(conf=conf, gateway=gateway)
        # It would print a traceback if the JVM ends first.
        context._accumulatorServer.handle_error = lambda request, client_address: None
        check()
        return context
    except BaseException as error:
        reason = str(error.java_exception).splitlines()[0] if isinstance(error, Py4JJavaError) else "the JVM has ended"
        _end_jvm(gateway)
        check()
        if not isinstance(error, (Py4JError, ConnectionError)):
            raise
        raise UnavailableError(f"Spark did not start on {conf.get('spark.master')}: {reason}") from error


def _fit_shuffle_partitions(context: Any, master: str, check: Callable[[], None]) -> None:
    """Set the default of shuffle partitions to the cluster's cores, as far as its executors have registered.

    A checkpoint keeps the number that its query started with.
    """
    spark, deadline = context._jsc.sc(), time.monotonic() + _EXECUTOR_SECONDS
    # The driver is one of them.
    while len(spark.statusTracker().getExecutorInfos()) < 2:
        if time.monotonic() > deadline:
            _log.warning("%s has given no executor in %d s: are its workers running?", master, _EXECUTOR_SECONDS)
            break
        check()
        time.sleep(0.1)
    # New sessions take their defaults from this object.
    spark.conf().set(SHUFFLE_PARTITIONS, str(context.defaultParallelism))


def stop_session(spark: Any) -> None:
    """Stop Spark and its JVM, and wait for their end, so that another can be started; end a Spark Connect session."""
    from py4j.protocol import Py4JError

    if not hasattr(spark, "_jvm"):
        stop_connect(spark)
        return
    gateway = spark.sparkContext._gateway
    # The JVM may have ended or stopped listening already.
    with suppress(Py4JError, OSError):
        spark.stop()
    _end_jvm(gateway)


def _end_jvm(gateway: Any) -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    with suppress(Py4JError, OSError):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    process = gateway.proc
    if process is not None:
        # The JVM ends when its stdin is closed.
        process.stdin.close()
        process.wait()


class _Interrupts:
    """The signals that `deferred_interrupts` defers, except during `run_interruptible`."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.is_call_interruptible = False

    def on_signal(self, number: int, frame: object) -> None:
        self.received.append(number)
        if self.is_call_interruptible:
            self.check()

    def check(self) -> None:
        if self.received:
            self.received.clear()
            self.is_call_interruptible = False
            raise KeyboardInterrupt


_interrupts: _Interrupts | None = None
"""Set in the main thread inside of `deferred_interrupts`."""


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C and SIGTERM until the block calls the yielded function, which raises `KeyboardInterrupt` for them.

    An interrupted call into the JVM breaks py4j's connection, which is needed to stop queries in order. Only
    `run_interruptible` is interrupted at once. Outside of the main thread this does nothing.
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


def run_interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` on the loop of the blocking clients, and return its result.

    Inside of `deferred_interrupts` a signal cancels it and raises `KeyboardInterrupt`.
    """
    interrupts = _interrupts
    if interrupts is None or threading.current_thread() is not threading.main_thread():
        return loop_thread().run(work)  # type: ignore[no-any-return]
    try:
        interrupts.is_call_interruptible = True
        interrupts.check()
        return loop_thread().run(work)  # type: ignore[no-any-return]
    finally:
        interrupts.is_call_interruptible = False


def _defaults(threads: int | None, *, is_local: bool) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **FIRST_BATCH,
        **_PUSHDOWN,
        # Other readers of Parquet read this as a UTC timestamp; Spark's own default is a Hive format.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        **(_LOCAL if is_local else {}),
        **({SHUFFLE_PARTITIONS: str(threads)} if threads is not None else {}),
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "odradek-warehouse"),
    }


def _cores() -> int:
    """Return the number of cores that this process may use; on macOS, the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
