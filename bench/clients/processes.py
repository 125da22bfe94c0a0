"""Runs workloads in processes of their own, so that a client's CPU is not that of the measuring process."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.model import UnavailableError
from odradek.testing.servers.server_process import AnnouncingProcess

_CLIENT_SECONDS: Final = 600
_SOURCE_TREE: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = f"""\
import sys
sys.path.insert(0, {str(_SOURCE_TREE)!r})
from bench.clients import client
client.main()
"""
"""Puts the source tree on Python's path first: `bench` is not installed."""


def client_command(*arguments: str) -> list[str]:
    """Return the command line of `client` with these arguments."""
    return [sys.executable, "-c", _PROGRAM, *arguments]


def run_client(workload: str, arguments: Mapping[str, object]) -> dict[str, float]:
    """Run a workload of `client.WORKLOADS` in a process of its own and return its figures.

    Raises `UnavailableError`, with the end of its stderr, if the process fails or takes over 600 seconds.
    """
    command = client_command(workload, json.dumps(arguments))
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
    """Run a workload in the background until the block ends."""
    command = client_command(workload, json.dumps(arguments))
    with AnnouncingProcess(f"the client of workload {workload!r}", command, prefix="started"):
        yield
