"""The measured servers: `odradek serve` and librdkafka's mock cluster, each a process of its own on loopback."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bench.clients.processes import client_command
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.server_process import AnnouncingProcess


class Server(Struct, frozen=True, kw_only=True):
    """A running server: its address for clients, and its process."""

    name: str
    bootstrap_servers: str
    pid: int


@contextmanager
def odradek_server(name: str = "odradek", *, options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run an Odradek broker on a temporary directory; `options` are its configuration."""
    settings = {"group.initial.rebalance.delay.ms": "0", **(options or {})}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        ServedBroker(Path(directory) / "data", options=settings) as broker,
    ):
        yield Server(name=name, bootstrap_servers=broker.bootstrap_servers, pid=broker.pid)


@contextmanager
def mock_server(name: str = "mock") -> Iterator[Server]:
    """Run librdkafka's mock cluster: C, one thread, no disk; it keeps the last few MiB of each partition."""
    with AnnouncingProcess("the mock", client_command("mock"), prefix="ready: ") as process:
        yield Server(name=name, bootstrap_servers=process.announced, pid=process.pid)
