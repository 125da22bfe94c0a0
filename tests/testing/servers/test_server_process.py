"""Servers as processes: known to be ready, ended in every way, and quoted if they do not start."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.testing import eventually
from odradek.testing.servers.server_process import AnnouncingProcess

SERVER = """
import signal, sys
def end(number, frame):
    print("ends", file=sys.stderr, flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("hello", flush=True)
print("ready: here", flush=True)
signal.pause()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def server_of(log: Path) -> Callable[[str], AnnouncingProcess]:
    return lambda code: AnnouncingProcess("the server", [sys.executable, "-c", code], prefix="ready: ", log=log)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_server_is_ready_when_it_says_so_and_what_it_says_is_kept(server_of, log: Path):
    with server_of(SERVER) as server:
        assert server.announced == "here"
        assert server.runs
        assert server.stop() == 3
        assert not server.runs
    assert log.read_text() == "ends\n"


def test_a_killed_server_writes_nothing_and_can_be_started_again(server_of, log: Path):
    server = server_of(SERVER)
    server.start()
    first = server.pid
    server.kill()
    assert log.read_text() == ""
    with server:
        assert server.pid != first


def test_a_server_killed_from_outside_can_be_started_again(server_of):
    with server_of(SERVER) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.runs, what="its end")
        server.start()
        assert server.runs


def test_a_paused_server_does_nothing_until_it_is_resumed(server_of):
    with server_of(SERVER) as server:
        server.pause()
        assert eventually(lambda: state_of(server.pid) == "T", what="a pause")
        server.resume()
        assert eventually(lambda: state_of(server.pid) == "S", what="an end of the pause")


def test_a_paused_server_can_be_ended(server_of):
    with server_of(SERVER) as server:
        server.pause()
        assert server.stop() in (3, -signal.SIGTERM)


def test_a_server_that_does_not_start_is_quoted_without_its_earlier_runs(server_of, log: Path):
    log.write_text("of an earlier run\n")
    server = server_of("import sys; print('no room', file=sys.stderr); sys.exit(1)")
    with pytest.raises(RuntimeError, match="the server did not start; it said:\nno room"):
        server.start()
    assert not server.runs


def test_a_server_that_does_not_end_is_killed(log: Path):
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('ready: ', flush=True); signal.pause()"
    with AnnouncingProcess("the deaf", [sys.executable, "-c", code], prefix="ready: ", log=log, stop_s=0.01) as server:
        assert server.stop() == -signal.SIGKILL
