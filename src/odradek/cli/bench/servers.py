"""What is measured: `odradek serve` and librdkafka's mock cluster, each a process of its own on loopback."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from odradek.model import UnavailableError
from odradek.testing.process import ServedBroker

_STOP_SECONDS = 20
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
    with _process(["-m", "odradek.cli.bench.client", "mock"]) as process:
        yield Server(name=name, bootstrap_servers=_ready(process, "ready: "), pid=process.pid)


def run_client(workload: str, arguments: Mapping[str, object]) -> dict[str, float]:
    """Run a workload of `client.WORKLOADS` in a process of its own and return its figures.

    Raises `UnavailableError`, with what it said last, if it failed or took too long.
    """
    command = [sys.executable, "-m", "odradek.cli.bench.client", workload, json.dumps(arguments)]
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
    with _process(["-m", "odradek.cli.bench.client", workload, json.dumps(arguments)]) as process:
        _ready(process, "started")
        yield


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _ready(process: "subprocess.Popen[str]", prefix: str) -> str:
    """What follows `prefix` on the line that starts with it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(prefix):
            return line.removeprefix(prefix).strip()
    raise UnavailableError(f"the server ended with exit code {process.wait()} before it was ready")
