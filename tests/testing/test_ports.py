"""Ports that a server is told before it starts: nobody else gets them, as far as that can be had."""

import socket
from pathlib import Path

import pytest

from odradek.testing import ports


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
