"""Starts Apache Kafka as a peer: its jars from Maven, local nodes (broker and controller), and its tools.

`bench/peers/kafka/pom.xml` pins Kafka's version; `maven` fetches the jars once. Without Kafka, everything here raises
`UnavailableError` with the reason.
"""

import functools
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from bench.peers.maven import fetch_jars
from odradek.spark.local.java import find_java
from odradek.testing.servers.ports import free_ports
from odradek.testing.servers.server_process import ServerProcess

_POM: Final = Path(__file__).resolve().parent / "kafka" / "pom.xml"
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_ANSWER_S: Final = 2.0

_BROKER_FLAGS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The flags of Kafka's own start script."""

_SHORT_LIVED_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Flags of tools and of tests' brokers: half the processor time until a broker answers."""

_TOOL_FLAGS: Final = ("-Xmx512M", *_SHORT_LIVED_FLAGS)

_LOG4J: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
"""

_COMBINED: Final = {"process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
"""Properties that every node needs; all others have Kafka's defaults."""

_ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Properties that a cluster of one node needs in addition."""

_CLUSTER_ID: Final = "T2RyYWRlayBwZWVyIGthZg"


class KafkaHome(Struct, frozen=True, kw_only=True):
    """The path of `java`, the folder of Kafka's jars, and its log configuration (warnings to stderr)."""

    java: Path
    jars: Path
    logging: Path

    def command(self, main: str, *arguments: str, flags: Sequence[str] = _TOOL_FLAGS) -> list[str]:
        """Return the command line that runs the Java class `main` with these JVM flags."""
        logging = f"-Dlog4j2.configurationFile={self.logging}"
        return [str(self.java), *flags, logging, "-cp", f"{self.jars}/*", main, *arguments]

    def tool(self, main: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Return the output of a Kafka tool, such as `org.apache.kafka.tools.DumpLogSegments`: stdout, then stderr.

        Raises `RuntimeError` with the output if the exit status is not 0.
        """
        done = subprocess.run(
            self.command(main, *arguments), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr


@functools.cache
def kafka_home() -> KafkaHome:
    """Return Kafka in the version of the pom, fetched by Maven the first time.

    Raises `UnavailableError` without Java or Maven, or if Maven can't reach a registry.
    """
    jars = fetch_jars("kafka", _POM)
    logging = jars / "log4j2.properties"
    if not logging.exists():
        logging.write_text(_LOG4J)
    return KafkaHome(java=find_java().home / "bin" / "java", jars=jars, logging=logging)


class KafkaBroker(ServerProcess):
    """One node of Kafka with `data_dir`, broker and controller in one process, on free ports that it keeps.

    `format` makes the directory, `start` returns when the broker answers, `stop` and `kill` end it. `with` calls
    `start` and `stop`, and `format` for a new directory. Its output goes to `data_dir` with the suffix `.err`.
    `options` are properties of `server.properties`, `listeners` the names of more listeners. With `short_lived` it
    starts sooner and runs slower. The node is a cluster of its own, unless `join` is called before `format`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        heap: str = "1G",
        node_id: int = 0,
        short_lived: bool = False,
        listeners: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.errors = data_dir.with_name(f"{data_dir.name}.err")
        super().__init__("Kafka", log=self.errors, start_s=_START_S, stop_s=_STOP_S)
        self._node_id = node_id
        self._voters = ""
        self._home = kafka_home()
        self._settings = data_dir.with_name(f"{data_dir.name}.properties")
        self._options = dict(options or {})
        self._flags = (f"-Xmx{heap}", f"-Xms{heap}", *(_SHORT_LIVED_FLAGS if short_lived else _BROKER_FLAGS))
        self._port, self._controller_port, *more = free_ports(2 + len(listeners))
        self._more_ports = dict(zip(listeners, more, strict=True))

    @property
    def voter(self) -> str:
        """The node's entry in `controller.quorum.voters`."""
        return f"{self._node_id}@127.0.0.1:{self._controller_port}"

    def join(self, voters: Iterable[str]) -> None:
        """Make the node part of a cluster with these `voters`, which include it."""
        self._voters = ",".join(voters)

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` for clients."""
        return f"127.0.0.1:{self._port}"

    def address_of(self, listener: str) -> str:
        """Return `HOST:PORT` of one of `listeners`."""
        return f"127.0.0.1:{self._more_ports[listener]}"

    def format(self) -> None:
        """Format the directory, as `kafka-storage.sh format` does."""
        self._write_settings()
        arguments = ["--cluster-id", _CLUSTER_ID, "--config", str(self._settings)]
        if not self._voters:
            arguments.append("--standalone")
        self._home.tool("kafka.tools.StorageTool", "format", *arguments)

    def __enter__(self) -> Self:
        if not (self.data_dir / "meta.properties").exists():
            self.format()
        return super().__enter__()

    def _command(self) -> Sequence[str]:
        self._write_settings()
        return self._home.command("kafka.Kafka", str(self._settings), flags=self._flags)

    def _is_ready(self) -> bool:
        return _answers(self._port)

    def _write_settings(self) -> None:
        ports = {"PLAINTEXT": self._port, "CONTROLLER": self._controller_port, **self._more_ports}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        settings = _COMBINED | {
            "node.id": str(self._node_id),
            "listeners": listeners,
            "log.dirs": str(self.data_dir),
        }
        if self._voters:
            settings["controller.quorum.voters"] = self._voters
        else:
            settings |= _ALONE | {"controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}"}
        settings |= self._options
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _answers(port: int) -> bool:
    """Return whether a broker answers ApiVersions: its socket is open long before it handles requests."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(4)) > 0
    except OSError:
        return False
