"""A process that has imported what PySpark's workers need, and forks for each of them (`launcher`).

    python -m odradek.spark.local.warm_python SOCKET FOLDER JVM

It ends with the JVM, and kills workers whose launcher was killed. It refuses to fork if the worker's variables differ
from its own, or if an imported file has changed. User code is only loaded in forks.
"""

import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.messages.message_codec import request_encoder, response_decoder
from odradek.spark.local.launcher import FOR_ONE_THREAD, FOR_TABLES, MOST_REQUEST_BYTES

_IMPORTED: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "encodings.idna",
    "odradek.spark.worker_daemon",
    "odradek.clients.producer.arrow",
    "odradek.columns.decode",
    "odradek.runtime.parent_process",
    "odradek.spark.schema",
    "odradek.spark.source",
    "odradek.spark.reading.batch_reader",
    "odradek.spark.reading.stream_reader",
    "odradek.spark.reading.worker_clients",
    "odradek.spark.writing.writers",
    "odradek.spark.writing.committer",
)
"""The modules that PySpark's workers run or import; another PySpark may not have all.

`odradek.spark.source.COMMITS` is not one: a process that has imported it commits.
"""
_OF_TABLES: Final = (
    "pyspark.sql.worker.lookup_data_sources",
    "odradek.spark.tables.source",
    "odradek.spark.tables.writers",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyiceberg.transforms",
)
"""The imports of the sink `odradek_iceberg`, which take seconds: only where `FOR_TABLES` is set."""
_REQUESTS: Final = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.FETCH,
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
)
"""Requests of workers, whose codecs are made before the forks."""
_READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "JE_", "ARROW_", "OPENBLAS_", "MKL_", "ODRADEK_")
"""Prefixes of variables that Python or a library reads once; Spark's own begin with `PYTHON_` and are read later."""
_THREADS: Final = "OMP_NUM_THREADS"
_READ_S: Final = 5.0


class Request(Struct, frozen=True):
    """The arguments, environment, folder and descriptors of a launcher."""

    directory: str
    environment: dict[str, str]
    arguments: list[str]
    descriptors: list[int]


class WarmPython:
    """Forks for launchers that connect to `listening`, until the process `jvm` ends; with `trouble` it refuses to."""

    def __init__(self, listening: socket.socket, jvm: int, trouble: str | None = None) -> None:
        self._listening = listening
        self._trouble = trouble
        self._environment = start_variables(os.environ, os.getcwd())
        self._files = imported_files()
        self._workers: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._jvm = os.pidfd_open(jvm)
        self._selector.register(self._jvm, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Return the request in each fork, and None in this process, when the JVM has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._jvm:
                    return None
                if key.fileobj is self._listening:
                    request = self._accept()
                    if request is not None:
                        return request
                elif isinstance(key.fileobj, socket.socket):
                    self._launcher_ended(key.fileobj, key.data)
                else:
                    self._worker_ended(key.fd, key.data)

    def _accept(self) -> Request | None:
        launcher, _ = self._listening.accept()
        try:
            launcher.settimeout(_READ_S)
            request = read_request(launcher)
        except (OSError, ValueError):
            launcher.close()
            return None
        if (reason := self._refusal(request)) is not None:
            self._refuse(launcher, request, reason)
            return None
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(launcher, request, str(error))
            return None
        if not pid:
            self._forget_all(launcher)
            return request
        _close(request)
        launcher.settimeout(None)
        ended = os.pidfd_open(pid)
        self._workers[pid] = launcher
        self._selector.register(ended, selectors.EVENT_READ, pid)
        self._selector.register(launcher, selectors.EVENT_READ, pid)
        with suppress(OSError):
            launcher.sendall(f"{pid}\n".encode())
        return None

    def _refuse(self, launcher: socket.socket, request: Request, reason: str) -> None:
        with suppress(OSError):
            launcher.sendall(f"{reason}\n".encode())
        _close(request)
        launcher.close()

    def _refusal(self, request: Request) -> str | None:
        if len(os.listdir("/proc/self/task")) > 1:
            return "the process to fork from has more than one thread"
        if (variables := start_variables(request.environment, request.directory)) != self._environment:
            names = {name for name, _ in variables.items() ^ self._environment.items()}
            return f"it has other values of {', '.join(sorted(names))} than the first worker"
        changed = (f"{file} has changed" for file, then in self._files.items() if modified(file) != then)
        return next(changed, self._trouble)

    def _forget_all(self, launcher: socket.socket) -> None:
        """In a fork: close what belongs to the parent."""
        for key in self._selector.get_map().values():
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        for each in (self._listening, launcher, *self._workers.values()):
            each.close()

    def _launcher_ended(self, launcher: socket.socket, pid: int) -> None:
        """Kill a worker whose launcher was killed: Spark has given it up."""
        if self._workers.get(pid) is launcher:  # else the worker has ended, too
            self._selector.unregister(launcher)
            os.kill(pid, signal.SIGKILL)

    def _worker_ended(self, ended: int, pid: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        launcher = self._workers.pop(pid)
        with suppress(KeyError):
            self._selector.unregister(launcher)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            launcher.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
        launcher.close()


def read_request(launcher: socket.socket) -> Request:
    """Return what `launcher` sends. Raise `OSError` or `ValueError` if it is not a whole request."""
    first, descriptors, _, _ = socket.recv_fds(launcher, 4, 3)
    size = int.from_bytes(first, "big")
    content = b""
    while len(content) < size <= MOST_REQUEST_BYTES and (more := launcher.recv(size - len(content))):
        content += more
    if len(first) != 4 or len(descriptors) != 3 or len(content) != size:
        for each in descriptors:
            os.close(each)
        raise ValueError("an incomplete request")
    directory, count, *rest = content.decode("utf-8", "surrogateescape").split("\0")
    variables, arguments = rest[: int(count)], rest[int(count) :]
    return Request(directory, dict(each.split("=", 1) for each in variables), arguments, list(descriptors))


def start_variables(environment: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return the variables that are read once, when Python starts in `directory` or imports.

    Repeated folders of `PYTHONPATH` are dropped: Spark adds some.
    """
    found = {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and not name.startswith("PYTHON_") and name not in FOR_ONE_THREAD
    }
    path = dict.fromkeys(os.path.join(directory, each) for each in found.pop("PYTHONPATH", "").split(":") if each)
    threads = environment.get("OPENBLAS_NUM_THREADS") or environment.get(_THREADS, "1")
    return found | {"PYTHONPATH": ":".join(path), _THREADS: threads}


def imported_files() -> dict[str, int]:
    """Return the files of imported modules, with when they were modified."""
    files = {getattr(module, "__file__", None) for module in tuple(sys.modules.values())}
    return {file: modified(file) for file in files if file}


def modified(file: str) -> int:
    """Return when `file` was modified, in ns; 0 if it is gone, or in an archive."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _close(request: Request) -> None:
    for each in request.descriptors:
        os.close(each)


def become(request: Request) -> None:
    """Run the request's module as Python would with `-m`; the process ends when its caller returns."""
    for number, descriptor in enumerate(request.descriptors):
        os.dup2(descriptor, number)
    _close(request)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    module, *arguments = request.arguments
    with suppress(OSError):
        Path("/proc/self/comm").write_text(module.rpartition(".")[2])  # the name that `ps` and `top` show
    if not sys.flags.safe_path:
        sys.path[0] = request.directory
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, then serve; a fork becomes its worker."""
    listening, folder, jvm = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    try:
        request = WarmPython(listening, jvm, _import()).serve()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if request is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        become(request)


def _import() -> str | None:
    """Import what workers need; return what went wrong, if anything did."""
    try:
        for name in (*_IMPORTED, *(_OF_TABLES if os.environ.get(FOR_TABLES) else ())):
            with suppress(ModuleNotFoundError):
                importlib.import_module(name)
        for api in _REQUESTS:
            version = schema_versions(api)[-1]
            request_encoder(api, version)
            response_decoder(api, version)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        os.register_at_fork(after_in_child=numpy_random.seed)  # also in forks of a fork, PySpark's daemon
    gc.collect()
    gc.freeze()
    return None


if __name__ == "__main__":
    main()
