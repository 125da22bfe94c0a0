"""A real ZooKeeper on loopback, as Debian's package `zookeeper` installs it, for tests of what needs one."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_SCRIPTS: Final = ("/usr/share/zookeeper/bin/zkServer.sh", "/opt/zookeeper/bin/zkServer.sh")
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_TICK_MS: Final = 100
"""Sessions last two ticks at least: tests of expiry need not wait long."""


def find_zookeeper() -> str | None:
    """The script that starts a server, None where ZooKeeper is not installed."""
    on_path = shutil.which("zkServer.sh")
    return on_path or next((script for script in _SCRIPTS if os.access(script, os.X_OK)), None)


class ZookeeperServer:
    """One standalone server, its files below `directory`; started by `with` or `start`, on the same port each time.

    What it prints goes to `directory/zookeeper.log`. Raises `RuntimeError` if it is not installed or does not start.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The number of the running process."""
        assert self._process is not None, "ZooKeeper does not run"
        return self._process.pid

    def start(self) -> None:
        """Return when it serves."""
        script = find_zookeeper()
        if script is None:
            raise RuntimeError("zookeeper is not installed: Debian's package has its name")
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(
            f"dataDir={self.directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime={_TICK_MS}\n"
            "maxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
        )
        environment = {
            **os.environ,
            "ZOO_LOG_DIR": str(self.directory),
            "ZOOPIDFILE": str(self.directory / "zookeeper.pid"),
            "ZOO_LOG4J_PROP": "WARN,CONSOLE",
            "JMXDISABLE": "true",
            "JVMFLAGS": "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (self.directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [script, "start-foreground", str(configuration)], stdout=log, stderr=log, env=environment
            )
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it as an operator does; its files stay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def _wait_until_it_serves(self) -> None:
        assert self._process is not None, "there is a process to wait for"
        deadline = time.monotonic() + _START_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.directory / "zookeeper.log").read_text(errors="replace")
                raise RuntimeError(f"ZooKeeper does not start:\n{said[-2000:]}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None, "ZooKeeper does not run"
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
