"""Limits of connections on real sockets: they hold in a served broker, and change while it runs."""

from pathlib import Path
from typing import Any, Final

import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

BROKER: Final = 4
FLAGS: Final = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def is_served(connection: BlockingWireClient) -> bool:
    connection.send(ApiKey.METADATA, FLAGS, 9)
    return connection.receive() is not None


def change(connection: BlockingWireClient, **config: str) -> None:
    keys = [{"name": name.replace("_", "."), "value": value, "config_operation": 0} for name, value in config.items()]
    wanted: dict[str, Any] = {"resource_type": BROKER, "resource_name": "0", "configs": keys}
    answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [wanted], "validate_only": False}, 1)
    assert answer.responses[0].error_code is ErrorCode.none, answer


def test_a_changed_connection_limit_per_address_applies_at_once(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker, BlockingWireClient(broker.bootstrap_servers) as first:
        servers = broker.bootstrap_servers
        change(first, max_connections_per_ip="2")
        with BlockingWireClient(servers) as second, BlockingWireClient(servers) as third:
            assert is_served(second)
            assert not is_served(third)
            change(first, max_connections_per_ip_overrides="127.0.0.1:3")
            with BlockingWireClient(servers) as fourth:
                assert is_served(fourth)
            change(first, max_connections="2")
            with BlockingWireClient(servers) as fifth:
                assert not is_served(fifth)
            assert is_served(second)
