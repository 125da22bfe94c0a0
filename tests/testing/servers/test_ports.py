"""Ports that a server is told before it starts: nobody else gets them, as far as that can be had."""

import gc
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.testing import Cluster
from odradek.testing.servers import ports
from odradek.testing.servers.odradek_process import ServedBroker


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
