"""`odradek serve` and `odradek up` as separate processes, which a test can kill with SIGKILL."""

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from odradek.config.properties import property_texts
from odradek.testing.servers.ports import HeldPort
from odradek.testing.servers.server_process import AnnouncingProcess

_SCRIPT: Final = str(Path(sys.executable).with_name("odradek"))
_ANY_PORT: Final = "127.0.0.1:0"


class ServedBroker(AnnouncingProcess):
    """A broker with its data in `data_dir`, started by `with` or `start`; its standard error goes to `errors`.

    `errors` is `<data_dir>.err` by default. The broker keeps the free port of its first start. `options` has Kafka's
    keys. `open_files` limits open files; `metadata` is the URL of the metadata tree, by default a file in `data_dir`.
    `launcher` precedes the command, and must exec it (as `nsenter` does), so that signals reach the broker. `arguments`
    are more arguments of `odradek serve`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, Any] | None = None,
        listen: str = _ANY_PORT,
        open_files: int | None = None,
        metadata: str | None = None,
        launcher: Sequence[str] = (),
        arguments: Sequence[str] = (),
        errors: Path | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.errors = errors or data_dir.with_name(f"{data_dir.name}.err")
        rest = list(arguments)
        if metadata is not None:
            rest += ["--metadata", metadata]
        for key, value in property_texts(options or {}).items():
            rest += ["-o", f"{key}={value}"]
        super().__init__("odradek serve", rest, prefix="ready: ", log=self.errors)
        self._open_files = open_files
        self._listen = listen
        self._port: HeldPort | None = None
        self._launcher = list(launcher)

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of the broker, after its first start."""
        return self.announced

    def _command(self) -> Sequence[str]:
        if self._port is None and self._listen == _ANY_PORT:
            self._port = HeldPort()
            self._listen = f"127.0.0.1:{self._port.number}"
        serve = [
            _SCRIPT,
            "serve",
            "--listen",
            self.announced or self._listen,
            "--data-dir",
            str(self.data_dir),
            *self._arguments,
        ]
        command = [*self._launcher, *serve]
        if self._open_files is None:
            return command
        return ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self._open_files), *command]


class SupervisedBrokers(AnnouncingProcess):
    """Several brokers with data in `data_dir`, under `odradek up`, which restarts killed brokers.

    The supervisor's standard error goes to `<data_dir>.err`.
    """

    def __init__(self, data_dir: Path, *, brokers: int = 3, options: Mapping[str, Any] | None = None) -> None:
        self.errors = data_dir.with_name(f"{data_dir.name}.err")
        command = [_SCRIPT, "up", "--brokers", str(brokers), "--port", "0", "--data-dir", str(data_dir)]
        for key, value in property_texts(options or {}).items():
            command += ["-o", f"{key}={value}"]
        super().__init__("odradek up", command, prefix="ready: ", log=self.errors)

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of all brokers, after their start."""
        return self.announced

    def broker_pid(self, broker_id: int) -> int:
        """Return the latest process id of a broker, from the supervisor's log."""
        said = re.findall(rf"broker {broker_id} serves at \S+ process (\d+)", self.errors.read_text(errors="replace"))
        assert said, f"there is no broker {broker_id}"
        return int(said[-1])

    def kill_broker(self, broker_id: int) -> int:
        """Kill one broker with SIGKILL; return its process id."""
        pid = self.broker_pid(broker_id)
        os.kill(pid, signal.SIGKILL)
        return pid
