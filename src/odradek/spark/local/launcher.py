"""Starts a worker of PySpark as a fork of a process that has imported everything (`warm_python`), else as Python does.

Spark runs this in place of Python, with Python's arguments. The first one that a JVM starts also starts the JVM's warm
process. A launcher waits for its worker, passes signals on, and ends with the worker's status. Each worker waits for
what is imported here: little of the standard library, and nothing else.
"""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

MOST_REQUEST_BYTES = 1 << 20
_WAIT_S = 30.0
"""The longest wait for the warm process, which may still import."""
_WARM = "odradek.spark.local.warm_python"
FOR_TABLES = "ODRADEK_SPARK_TABLES"
"""The environment variable of a session that writes tables; empty for others."""
FOR_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Without these, numpy and Arrow start threads when they are imported, and a process with threads cannot be forked."""


def main() -> None:
    """Run Python with this process's arguments: by a fork, else in this process."""
    if len(sys.argv) > 2 and sys.argv[1] == "-m" and hasattr(os, "pidfd_open"):
        try:
            folder = warm_folder(os.getppid())
            if not os.path.exists(folder):
                start_warm(folder, os.getppid(), os.environ)
            worker = _Worker(folder)
        except OSError as error:
            sys.stderr.write(f"odradek: this worker of Spark imports by itself: {error}\n")
            sys.stderr.flush()
        else:
            sys.exit(worker.wait())
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def warm_folder(pid: int) -> str:
    """Return the folder for the socket of a JVM's warm process; it names the process by its id and start."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        started = file.read().rpartition(b")")[2].split()[19].decode()
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"odradek-python-{os.getuid()}-{pid}-{started}")


def start_warm(folder: str, jvm: int, environment: Mapping[str, str]) -> None:
    """Start the warm process of a JVM, which listens in `folder`. Raise `OSError`, also if the folder exists."""
    import subprocess

    os.close(os.pidfd_open(jvm))  # kernels before 5.3 have none
    os.mkdir(folder, 0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        with _socket_path(folder) as path:
            listening.bind(path)
        listening.listen(128)
        # The shell ends at once, so that nobody has to wait for the process.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", _WARM, str(listening.fileno()), folder, str(jvm)],
            env={**environment, **FOR_ONE_THREAD},
            pass_fds=(listening.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )


@contextmanager
def _socket_path(folder: str) -> Iterator[str]:
    """Yield a path, of at most 107 bytes, of the socket in `folder`, which nobody else may enter."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_mode & 0o077 or found.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not this user's alone: remove it")
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


class _Worker:
    """A fork of the warm process. Raise `OSError` if it refuses, or cannot be trusted."""

    def __init__(self, folder: str) -> None:
        self._pid = 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._pass_on)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_WAIT_S)
        with _socket_path(folder) as path:
            self._socket.connect(path)
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        request = "\0".join([os.getcwd(), str(len(variables)), *variables, *sys.argv[2:]])
        content = request.encode("utf-8", "surrogateescape")
        socket.send_fds(self._socket, [len(content).to_bytes(4, "big")], [0, 1, 2])
        self._socket.sendall(content)
        answer = self._read_line()
        if not answer.isdigit():
            raise OSError(answer or "the process to fork from has ended")
        self._pid = int(answer)
        self._socket.settimeout(None)

    def wait(self) -> int:
        """Return the worker's exit status, or 128 and the number of the signal that ended it."""
        return int(self._read_line() or 1)

    def _pass_on(self, number: int, frame: object) -> None:
        if not self._pid:
            sys.exit(128 + number)  # the warm process ends the worker, if there is one
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _read_line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            more = self._socket.recv(1)
            if not more:
                return ""
            line += more
        return line[:-1].decode()


if __name__ == "__main__":
    main()
