"""Base classes of servers that run as a separate process: start, wait until ready, stop, kill, pause."""

import os
import select
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from odradek.testing.machine_clock import monotonic

_POLL_S: Final = 0.01
_ENDING_SHOWN: Final = 4000
"""Characters of the server's output that the error of a failed start contains, at most."""


class ServerProcess(ABC):
    """One server, called `name` in errors; started by `with` or `start`, any number of times.

    Its output is appended to `log`, or is this process's if `log` is None. A start fails after `start_s` seconds; a
    server that has not stopped after `stop_s` seconds is killed.
    """

    def __init__(self, name: str, *, log: Path | None, start_s: float = 60.0, stop_s: float = 30.0) -> None:
        self._name = name
        self._log = log
        self._start_s = start_s
        self._stop_s = stop_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        return self._running().pid

    @property
    def runs(self) -> bool:
        """Whether the process was started, and has not ended since."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The status of a process that ended by itself; None while it runs, and after `stop` or `kill`."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the server and return when it serves.

        If it does not, kill it and raise `RuntimeError` with its output.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process and return at once: several servers may need each other to get ready."""
        assert not self.runs, f"{self._name} runs already"
        self.kill()  # forgets a process that was killed from outside
        command, environment = self._command(), os.environ | self._environment()
        with ExitStack() as stack:
            log = None if self._log is None else stack.enter_context(self._log.open("ab"))
            self._log_start = 0 if log is None else log.tell()
            # Unbuffered: `select` would not see a line that was read ahead.
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.DEVNULL, stdout=self._output(log), stderr=log, env=environment
            )

    def wait_until_ready(self) -> None:
        """Return when the launched process serves; if it does not, kill it and raise `RuntimeError`."""
        process = self._running()
        deadline = monotonic() + self._start_s
        try:
            while not self._is_ready():
                if process.poll() is not None or monotonic() > deadline:
                    raise RuntimeError(f"{self._name} did not start; it said:\n{self._last_words()}")
                time.sleep(_POLL_S)
        except BaseException:
            self.kill()
            raise

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process with SIGTERM or SIGINT; return its exit status."""
        return self._end(number)

    def kill(self) -> None:
        """Kill the process, if there is one, with SIGKILL."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Pause the process with SIGSTOP until `resume`; its connections stay open."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process after `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    def _environment(self) -> Mapping[str, str]:
        """Return variables to add to this process's environment."""
        return {}

    def _output(self, log: Any) -> Any:
        """Return the file for standard output; `log` is the open log or None."""
        return log

    @abstractmethod
    def _is_ready(self) -> bool:
        """Return whether the server serves; called repeatedly, so it may wait for a moment."""

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, f"{self._name} does not run"
        return self._process

    def _last_words(self) -> str:
        output = b"" if self._log is None else self._log.read_bytes()[self._log_start :]
        return output.decode(errors="replace")[-_ENDING_SHOWN:]

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._running(), None
        with process:  # closes its pipes
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a paused process receives no other signal
            try:
                return process.wait(self._stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()


class AnnouncingProcess(ServerProcess):
    """A process that prints a line with `prefix` when it serves; `announced` is the rest of the line."""

    def __init__(
        self, name: str, command: Sequence[str], *, prefix: str, log: Path | None = None, stop_s: float = 30.0
    ) -> None:
        super().__init__(name, log=log, stop_s=stop_s)
        self.announced = ""
        self._arguments = list(command)
        self._prefix = prefix.encode()

    def _command(self) -> Sequence[str]:
        return self._arguments

    def _output(self, log: Any) -> Any:
        return subprocess.PIPE

    def _is_ready(self) -> bool:
        output = self._running().stdout
        assert output is not None, "its output is a pipe"
        if not select.select([output], [], [], 1.0)[0]:
            return False
        line = output.readline()
        if not line.startswith(self._prefix):
            return False
        self.announced = line.removeprefix(self._prefix).decode().strip()
        return True
