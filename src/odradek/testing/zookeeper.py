"""A real ZooKeeper on loopback, as Debian's package `zookeeper` installs it, for tests of what needs one."""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.testing.ports import free_ports
from odradek.testing.server_process import ServerProcess

_SCRIPTS: Final = ("/usr/share/zookeeper/bin/zkServer.sh", "/opt/zookeeper/bin/zkServer.sh")
_TICK_MS: Final = 100
"""Sessions last two ticks at least: tests of expiry need not wait long."""


def find_zookeeper() -> str | None:
    """The script that starts a server, None where ZooKeeper is not installed."""
    on_path = shutil.which("zkServer.sh")
    return on_path or next((script for script in _SCRIPTS if os.access(script, os.X_OK)), None)


class ZookeeperServer(ServerProcess):
    """One standalone server, its files below `directory`; started by `with` or `start`, on the same port each time.

    What it prints goes to `directory/zookeeper.log`. Raises `RuntimeError` if it is not installed or does not start.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__("ZooKeeper", log=directory / "zookeeper.log")
        self.directory = directory
        (self.port,) = free_ports(1)

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients."""
        return f"127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        script = find_zookeeper()
        if script is None:
            raise RuntimeError("zookeeper is not installed: Debian's package has its name")
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(
            f"dataDir={self.directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime={_TICK_MS}\n"
            "maxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
        )
        return script, "start-foreground", str(configuration)

    def _environment(self) -> Mapping[str, str]:
        return {
            "ZOO_LOG_DIR": str(self.directory),
            "ZOOPIDFILE": str(self.directory / "zookeeper.pid"),
            "ZOO_LOG4J_PROP": "WARN,CONSOLE",
            "JMXDISABLE": "true",
            "JVMFLAGS": "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False
