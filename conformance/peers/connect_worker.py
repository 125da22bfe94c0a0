"""A worker of Kafka Connect in distributed mode, as a process with its REST API on a free port."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.kafka_peer import kafka_home
from odradek.testing.servers.ports import free_ports
from odradek.testing.servers.server_process import ServerProcess

_MOVED: Final = Path(__file__).parent / "java" / "AppInfoParser.java"
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_START_S: Final = 120.0
_ANSWER_S: Final = 10.0
_LATER: Final = frozenset({404, 409, 500, 503})
"""Of something unknown yet, during a rebalance, of a leader out of reach, of a worker that starts."""


class ConnectWorker(ServerProcess):
    """A worker of the Connect cluster `group`, its files below `folder`; `settings` are more of its properties."""

    def __init__(self, folder: Path, name: str, *, servers: str, group: str, settings: Mapping[str, str]) -> None:
        self.errors = folder / f"{name}.err"
        super().__init__("Connect", log=self.errors, start_s=_START_S)
        (port,) = free_ports(1)
        self.worker_id = f"127.0.0.1:{port}"
        self._properties = folder / f"{name}.properties"
        topics = {
            key: value
            for kind in ("config", "offset", "status")
            for key, value in (
                (f"{kind}.storage.topic", f"{group}-{kind}"),
                (f"{kind}.storage.replication.factor", "1"),
                (f"{kind}.storage.partitions", "1"),
            )
            if key != "config.storage.partitions"
        }
        everything = {
            "bootstrap.servers": servers,
            "group.id": group,
            "listeners": f"http://{self.worker_id}",
            "key.converter": _STRING,
            "value.converter": _STRING,
            "plugin.discovery": "service_load",
            **topics,
            **settings,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in everything.items()))

    def get(self, path: str) -> Any:
        """Return what the REST API has at a path; None while it cannot answer."""
        return self._request(path, None)

    def put(self, path: str, message: Mapping[str, str]) -> Any:
        """Put this to a path; return the answer, or None while the worker cannot take it."""
        return self._request(path, json.dumps(message).encode())

    def _request(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(
            f"http://{self.worker_id}{path}",
            data=body,
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code not in _LATER:
                    raise
            return None
        except OSError:
            return None

    def _command(self) -> Sequence[str]:
        kafka, classes = kafka_home(), self._properties.parent / "classes"
        compiler = [str(kafka.java), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-d", str(classes), str(_MOVED)], check=True)
        command = kafka.command(_MAIN, str(self._properties))
        return [f"{part}:{classes}" if part == f"{kafka.jars}/*" else part for part in command]

    def _is_ready(self) -> bool:
        return self.get("/connectors") is not None
