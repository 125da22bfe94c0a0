"""How many clients may come in, from where, and how fast."""

import pytest

from odradek.broker.security.quotas.connection_quotas import ConnectionQuotas
from odradek.config import BrokerConfig, parse_ip_counts
from odradek.model import ConfigurationError


def test_clients_are_counted_in_all_and_by_address() -> None:
    quotas = ConnectionQuotas(most_open=100, config=BrokerConfig())
    config = BrokerConfig(
        max_connections=4, max_connections_per_ip=2, max_connections_per_ip_overrides="10.0.0.9:3, [::1]:1,fe80::1:0"
    )
    came = [quotas.admit(config, ip) for ip in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "::1", "::1", "fe80::1")]
    assert [each is None for each in came] == [True, True, False, True, False, False]
    assert "max.connections.per.ip" in str(came[2])
    quotas.dismiss("10.0.0.1")
    assert [quotas.admit(config, "10.0.0.9") is None for _ in range(3)] == [True, True, False], "4 are max.connections"
    quotas.dismiss("::1")
    assert quotas.admit(config, "10.0.0.9") is None


def test_connections_are_limited_by_the_open_files_of_the_system_too() -> None:
    quotas = ConnectionQuotas(most_open=1, config=BrokerConfig())
    assert quotas.admit(BrokerConfig(), "a") is None
    assert "open files" in str(quotas.admit(BrokerConfig(), "b"))


def test_connections_above_the_creation_rate_are_delayed() -> None:
    quotas = ConnectionQuotas(most_open=100, config=BrokerConfig())
    config = BrokerConfig(max_connection_creation_rate=10)
    delays = [quotas.delay_s(config, 50.0) for _ in range(20)]
    assert delays[:10] == pytest.approx([0.0] * 10)
    assert delays[10:] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert quotas.delay_s(config, 60.0) == 0.0
    assert [quotas.delay_s(BrokerConfig(), 60.0) for _ in range(1000)] == [0.0] * 1000


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", "localhost:3", "10.0.0.1:-1", "10.0.0.1:x", ":5"])
def test_overrides_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerConfig.parse({"max.connections.per.ip.overrides": text})
    assert parse_ip_counts("") == {}
