"""`odradek serve` in a process of its own, for tests that kill it: a crash that no library call can imitate."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_START_S: Final = 60.0
"""How long a start may take: recovery of a large log, on a machine that does other things."""

_STOP_S: Final = 30.0


class ServedBroker:
    """A broker over `data_dir`, started by `with` or `start`; what it prints goes to `data_dir`'s neighbour, `*.err`.

    It takes a free port when it first starts and keeps it when it starts again. `open_files` is what the system lets it
    open, `metadata` the URL of its tree, by default a file in `data_dir`. `launcher` comes before the command, and must
    become it (as `nsenter` does): it is the process that is killed. `arguments` are more of `odradek serve`'s.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        open_files: int | None = None,
        metadata: str | None = None,
        launcher: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.errors = data_dir.with_name(f"{data_dir.name}.err")
        self.bootstrap_servers = ""
        self._options = dict(options or {})
        self._open_files = open_files
        self._listen = listen
        self._metadata = metadata
        self._launcher = list(launcher)
        self._arguments = list(arguments)
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The number of the running process."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> None:
        """Return when the broker serves. Raises `RuntimeError` with what it printed if it does not."""
        assert self._process is None, "the broker runs already"
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command(), stdout=subprocess.PIPE, stderr=errors, text=True)
        line = ""
        try:
            with _impatient(_START_S, self._process):
                assert self._process.stdout is not None
                line = self._process.stdout.readline()
        finally:
            if not line.startswith("ready: "):
                self.kill()
        if not line.startswith("ready: "):
            raise RuntimeError(f"odradek serve said {line!r} and then:\n{self.errors.read_text()}")
        self.bootstrap_servers = self._listen = line.removeprefix("ready: ").strip()

    def stop(self) -> int:
        """End the broker as an operator does, with SIGTERM; returns its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a crash does, with SIGKILL."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def _command(self) -> list[str]:
        script = str(Path(sys.executable).with_name("odradek"))
        command = [*self._launcher, script, "serve", "--listen", self._listen, "--data-dir", str(self.data_dir)]
        command += self._arguments
        if self._metadata is not None:
            command += ["--metadata", self._metadata]
        for key, value in self._options.items():
            command += ["-o", f"{key}={value}"]
        if self._open_files is None:
            return command
        return ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self._open_files), *command]

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "the broker does not run"
        with process, _impatient(_STOP_S, process):
            process.send_signal(number)
            return process.wait()


@contextlib.contextmanager
def _impatient(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill `process` if the block takes longer than that."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
