"""Servers as processes: known to be ready, ended in every way, and quoted if they do not start."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.testing import Cluster, eventually
from odradek.testing.servers import ports
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.server_process import AnnouncingProcess
from odradek.testing.servers.zookeeper import ZookeeperEnsemble

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


# ---- An ensemble -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("zookeeper")
def test_an_ensemble_elects_another_leader_when_its_leader_is_killed(tmp_path: Path) -> None:
    with ZookeeperEnsemble(tmp_path) as ensemble:
        assert sorted(str(server.mode()) for server in ensemble.servers) == ["follower", "follower", "leader"]
        killed = ensemble.leader()
        assert killed is not None
        killed.kill()
        assert killed.mode() is None
        successor = eventually(ensemble.leader, within_s=60.0)
        assert successor is not killed
        killed.start()
        assert killed.mode() == "follower"
    assert not any(server.runs for server in ensemble.servers)


# ---- Ports -----------------------------------------------------------------------------------------------------------


def test_each_is_another_and_can_be_had() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.getsockname()[1] == port


def test_no_connection_is_given_one_before_its_server_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    range_of_connections = tmp_path / "range"
    monkeypatch.setattr(ports, "_OF_CONNECTIONS", range_of_connections)
    for text, below in (("10010\t60999\n", 10_010), ("1024\t65535\n", 32_768)):
        range_of_connections.write_text(text)
        assert all(port < below for port in ports.free_ports(5))
    range_of_connections.unlink()
    assert all(port < 32_768 for port in ports.free_ports(5))


def test_none_that_is_free_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", ports.free_ports(1)[0])) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        monkeypatch.setattr(ports, "_first_of_connections", lambda: port + 1)
        with pytest.raises(OSError, match="no 1 free ports"):
            ports.free_ports(1)


def listening(port: int) -> socket.socket:
    """As asyncio listens."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held")
def test_a_held_port_stays_reserved_for_its_server_between_runs() -> None:
    held = ports.HeldPort()
    for _ in range(2):
        with listening(held.number), socket.create_connection(("127.0.0.1", held.number), timeout=60):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.number), timeout=60)
        with ExitStack() as others:
            taken = [others.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(200)]
        assert held.number not in taken
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", held.number))


def test_a_port_is_held_until_it_is_released_or_forgotten() -> None:
    released, forgotten = ports.HeldPort(), ports.HeldPort()
    numbers = released.number, forgotten.number
    released.release()
    del forgotten
    gc.collect()
    for number in numbers:
        with socket.socket() as other:
            other.bind(("127.0.0.1", number))
            assert other.getsockname()[1] == number


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held")
def test_the_port_of_a_killed_broker_stays_taken(tmp_path: Path) -> None:
    with Cluster() as cluster, ServedBroker(tmp_path / "data") as served:
        addresses = cluster.bootstrap_servers, served.bootstrap_servers
        cluster.kill(0)
        served.kill()
        for address in addresses:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        cluster.restart(0)
        served.start()
        assert (cluster.bootstrap_servers, served.bootstrap_servers) == addresses
