"""What is measured: `odradek serve` and librdkafka's mock cluster, each a process of its own on loopback."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.model import UnavailableError
from odradek.model.values import dataclass
from odradek.testing.process import ServedBroker
from odradek.testing.server_process import AnnouncingProcess

_CLIENT_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: where clients connect, and which process to look at."""

    name: str
    bootstrap_servers: str
    pid: int


@contextmanager
def odradek_server(name: str = "odradek", *, options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A broker of ours on a temporary directory; `options` are its configuration."""
    settings = {"group.initial.rebalance.delay.ms": "0", **(options or {})}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        ServedBroker(Path(directory) / "data", options=settings) as broker,
    ):
        yield Server(name=name, bootstrap_servers=broker.bootstrap_servers, pid=broker.pid)


@contextmanager
def mock_server(name: str = "mock") -> Iterator[Server]:
    """The mock cluster of librdkafka: C, one thread, no disk, keeps the last few MiB of each partition."""
    with AnnouncingProcess("the mock", _client("mock"), prefix="ready: ") as process:
        yield Server(name=name, bootstrap_servers=process.announced, pid=process.pid)


def run_client(workload: str, arguments: Mapping[str, object]) -> dict[str, float]:
    """Run a workload of `client.WORKLOADS` in a process of its own and return its figures.

    Raises `UnavailableError`, with what it said last, if it failed or took too long.
    """
    command = _client(workload, json.dumps(arguments))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CLIENT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"the client of workload {workload!r} took over {_CLIENT_SECONDS} seconds") from None
    if done.returncode != 0:
        raise UnavailableError(f"the client of workload {workload!r} failed: {done.stderr.strip()[-500:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@contextmanager
def background_client(workload: str, arguments: Mapping[str, object]) -> Iterator[None]:
    """A workload that runs beside what is measured, until the block ends."""
    command = _client(workload, json.dumps(arguments))
    with AnnouncingProcess(f"the client of workload {workload!r}", command, prefix="started"):
        yield


def _client(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek.cli.bench.client", *arguments]
