"""A real ZooKeeper, as Debian's package `zookeeper` installs it: one server, or an ensemble of several.

Servers listen on loopback unless a test gives other addresses, for instance of network namespaces. They do not fsync
their log: a killed process loses nothing by it, and a busy disk would expire sessions.
"""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from odradek.testing.servers.ports import free_ports
from odradek.testing.servers.server_process import ServerProcess

_SCRIPTS: Final = ("/usr/share/zookeeper/bin/zkServer.sh", "/opt/zookeeper/bin/zkServer.sh")
_TICK_MS: Final = 100
"""Short, because the shortest session time-out is two ticks."""
_INIT_LIMIT_TICKS: Final = 100
_SYNC_LIMIT_TICKS: Final = 30
"""Limits for an ensemble's server to connect to the leader, and to answer it, long enough for a busy machine."""
_ANSWER_S: Final = 1.0
_WITH_TLS: Final = "-cp /etc/zookeeper/conf" + "".join(
    f":/usr/share/java/{each}.jar" for each in ("zookeeper", "netty-codec", "netty-resolver")
)
"""Debian's package leaves parts of Netty, which serves TLS, out of its class path."""


def find_zookeeper() -> str | None:
    """Return the script that starts a server, None where ZooKeeper is not installed."""
    on_path = shutil.which("zkServer.sh")
    return on_path or next((script for script in _SCRIPTS if os.access(script, os.X_OK)), None)


class ZookeeperServer(ServerProcess):
    """One server, its files below `directory`; started by `with` or `start`, on the same port each time.

    Its output goes to `directory/zookeeper.log`. `launcher` precedes the command and must exec it, as `nsenter` does.
    `heap` is the JVM's limit. `start` raises `RuntimeError` if ZooKeeper is not installed or does not start.
    """

    def __init__(
        self, directory: Path, *, host: str = "127.0.0.1", launcher: Sequence[str] = (), heap: str = "256m"
    ) -> None:
        super().__init__("ZooKeeper", log=directory / "zookeeper.log")
        self.directory = directory
        self._host = host
        self._launcher = list(launcher)
        self._heap = heap
        self._server_id = 0
        self._ensemble = ""
        self._tls = ""
        self.port, self.secure_port, self._quorum_port, self._election_port = free_ports(4)

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients."""
        return f"{self._host}:{self.port}"

    @property
    def secure_address(self) -> str:
        """`HOST:PORT` for clients with TLS, after `use_tls`."""
        return f"{self._host}:{self.secure_port}"

    @property
    def quorum_address(self) -> str:
        """`HOST:PORT:PORT` for the other servers of an ensemble."""
        return f"{self._host}:{self._quorum_port}:{self._election_port}"

    def mode(self) -> str | None:
        """Return `standalone`, `leader` or `follower`; None while the server does not serve."""
        try:
            with socket.create_connection((self._host, self.port), timeout=_ANSWER_S) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while piece := connection.recv(4096):
                    answer += piece
        except OSError:
            return None
        _, found, rest = answer.partition(b"Mode: ")
        return rest.split()[0].decode() if found else None

    def use_tls(self, keystore: Path, truststore: Path, *, client_auth: str = "none") -> None:
        """Configure the next start to serve TLS at `secure_address`, by PEM files; `client_auth` is none or need."""
        stores = "".join(
            f"ssl.{name}.location={path}\nssl.{name}.type=PEM\n"
            for name, path in (("keyStore", keystore), ("trustStore", truststore))
        )
        self._tls = (
            f"secureClientPort={self.secure_port}\nsecureClientPortAddress={self._host}\n{stores}"
            f"ssl.clientAuth={client_auth}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
        )

    def join_ensemble(self, server_id: int, quorum_addresses: Mapping[int, str]) -> None:
        """Configure the next start to join an ensemble; `quorum_addresses` are by server id."""
        self._server_id = server_id
        self._ensemble = f"initLimit={_INIT_LIMIT_TICKS}\nsyncLimit={_SYNC_LIMIT_TICKS}\n" + "".join(
            f"server.{number}={address}\n" for number, address in quorum_addresses.items()
        )

    def _command(self) -> Sequence[str]:
        script = find_zookeeper()
        if script is None:
            raise RuntimeError("ZooKeeper is not installed: install Debian's package `zookeeper`")
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(
            f"dataDir={data}\nclientPort={self.port}\nclientPortAddress={self._host}\ntickTime={_TICK_MS}\n"
            "forceSync=no\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr\n" + self._tls + self._ensemble
        )
        if self._ensemble:
            (data / "myid").write_text(f"{self._server_id}\n")
        return *self._launcher, script, "start-foreground", str(configuration)

    def _environment(self) -> Mapping[str, str]:
        return {
            "ZOO_LOG_DIR": str(self.directory),
            "ZOOPIDFILE": str(self.directory / "zookeeper.pid"),
            "ZOO_LOG4J_PROP": "WARN,CONSOLE",
            "JMXDISABLE": "true",
            "JVMFLAGS": f"-Xmx{self._heap} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_WITH_TLS if self._tls else ''}",
        }

    def _is_ready(self) -> bool:
        return self.mode() is not None


class ZookeeperEnsemble:
    """Servers that elect a leader, their files below `directory`; started by `with`.

    `hosts` and `launchers` have one entry for each server.
    """

    def __init__(
        self, directory: Path, *, hosts: Sequence[str] = ("127.0.0.1",) * 3, launchers: Sequence[Sequence[str]] = ()
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        places = [directory / f"server-{number}" for number in range(len(hosts))]
        for place in places:
            place.mkdir(exist_ok=True)
        self.servers = [
            ZookeeperServer(place, host=host, launcher=launcher, heap="96m")
            for place, host, launcher in zip(places, hosts, launchers or [()] * len(hosts), strict=True)
        ]
        addresses = {number: server.quorum_address for number, server in enumerate(self.servers, 1)}
        for number, server in enumerate(self.servers, 1):
            server.join_ensemble(number, addresses)

    @property
    def address(self) -> str:
        """`HOST:PORT,…` of all servers, for clients."""
        return ",".join(server.address for server in self.servers)

    def leader(self) -> ZookeeperServer | None:
        return next((server for server in self.servers if server.runs and server.mode() == "leader"), None)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.kill)
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_ready()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()
