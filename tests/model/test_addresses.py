"""Addresses: one function writes them, and one reads them, IPv6 among them (X2)."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.admin.descriptions import BrokerDescription
from odradek.config.listeners import ListenerAddress, parse_listener
from odradek.config.load import load
from odradek.config.replaced_keys import with_listeners
from odradek.metadata.nodes import BrokerNode
from odradek.model import ConfigurationError, address_text, parse_host_port, parse_server
from odradek.runtime.listening import listening_error
from odradek.stores.opening import parse_zookeeper_url
from odradek.texts.node_texts import sentence

READ = [
    ("localhost:9092", ("localhost", 9092)),
    ("LOCALHOST:9092", ("LOCALHOST", 9092)),
    (" localhost:9092\n", ("localhost", 9092)),
    ("kafka-1.example.:1", ("kafka-1.example.", 1)),
    ("broker_1:65535", ("broker_1", 65535)),
    ("10.0.0.1:0", ("10.0.0.1", 0)),
    (":9092", ("", 9092)),
    ("b:00080", ("b", 80)),
    ("[::1]:9092", ("::1", 9092)),
    ("[::]:9092", ("::", 9092)),
    ("[0:0:0:0:0:0:0:1]:9092", ("::1", 9092)),
    ("[0000:0000:0000:0000:0000:0000:0000:0000]:1", ("::", 1)),
    ("[2001:DB8::A]:9092", ("2001:db8::a", 9092)),
    ("[2001:db8:0:0:1:0:0:1]:9092", ("2001:db8::1:0:0:1", 9092)),
    ("[::ffff:10.0.0.1]:9092", (str(IPv6Address("::ffff:10.0.0.1")), 9092)),
    ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
    ("  [::1]:1 ", ("::1", 1)),
]
REFUSED = [
    ("", "HOST:PORT"),
    ("localhost", "HOST:PORT"),
    ("9092", "HOST:PORT"),
    ("localhost:", "HOST:PORT"),
    ("localhost:x", "0 to 65535"),
    ("localhost:-1", "0 to 65535"),
    ("localhost:65536", "0 to 65535"),
    ("localhost:\u0661", "0 to 65535"),
    ("localhost:9092:", "0 to 65535"),
    ("PLAINTEXT://localhost:9092", "without a protocol"),
    ("::1", r"HOST:PORT or \[IPV6\]:PORT"),
    ("::1:9092", r"needs brackets: \[::1\]:9092"),
    ("fe80::1%eth0:9092", r"needs brackets: \[fe80::1%eth0\]:9092"),
    ("0:0:0:0:0:0:0:1:9092", r"needs brackets: \[::1\]:9092"),
    ("[::1:9092", r"needs brackets: \[::1\]:9092"),
    ("::1]:9092", r"needs brackets: \[::1\]:9092"),
    ("[::1]", "HOST:PORT"),
    ("[::1]9092", "HOST:PORT"),
    ("[]:9092", r"\[IPV6\]:PORT"),
    ("[localhost]:9092", r"\[IPV6\]:PORT"),
    ("[10.0.0.1]:9092", r"\[IPV6\]:PORT"),
    ("[::g]:9092", r"\[IPV6\]:PORT"),
    ("[1:2]:9092", r"\[IPV6\]:PORT"),
    ("[[::1]]:9092", r"\[IPV6\]:PORT"),
    ("[fe80::1%]:9092", r"\[IPV6\]:PORT"),
    ("[fe80::1%a]b]:9092", r"\[IPV6\]:PORT"),
    ("a:b:9092", r"\[IPV6\]:PORT"),
    ("ho[st:9092", r"\[IPV6\]:PORT"),
]


@pytest.mark.parametrize(("text", "address"), READ)
def test_an_address_is_read_and_written_again(text: str, address: tuple[str, int]) -> None:
    assert parse_host_port(text) == address
    assert parse_host_port(address_text(*address)) == address
    listener = parse_listener(f"SASL_SSL://{text.strip()}")
    assert listener == ("SASL_SSL", *address)
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_another_text_is_refused_with_the_form_of_addresses(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_host_port(text)


@given(st.ip_addresses(v=6), st.integers(0, 65_535))
def test_every_address_of_ipv6_is_read_as_it_was_written(host: IPv6Address, port: int) -> None:
    assert parse_host_port(address_text(str(host), port)) == (str(host), port)
    assert parse_host_port(address_text(host.exploded, port)) == (str(host), port)


@pytest.mark.parametrize(
    ("text", "address"),
    [("a", ("a", 2181)), ("a:1", ("a", 1)), ("[::1]", ("::1", 2181)), ("[::1]:1", ("::1", 1)), ("1", ("1", 2181))],
)  # fmt: skip
def test_a_server_may_have_a_default_port(text: str, address: tuple[str, int]) -> None:
    assert parse_server(text, 2181) == address


@pytest.mark.parametrize("text", ["", ":1", "a:0", "[::1]:0", "::1", "[::1", "[]", "a:"])
def test_a_server_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST"):
        parse_server(text, 2181)
    with pytest.raises(ConfigurationError, match="HOST or HOST:PORT of a ZooKeeper server"):
        parse_zookeeper_url(f"zookeeper://a,{text}/chroot")


def test_texts_with_addresses_have_brackets() -> None:
    assert BrokerDescription(broker_id=0, host="::1", port=1, rack=None).address == "[::1]:1"
    assert "can't listen on [::1]:9092: " in str(listening_error("::1", 9092, OSError(98, "x")))
    node = BrokerNode(endpoints=(ListenerAddress("SSL", "::1", 1), ListenerAddress("A", "b", 2)), timestamp_ms=0)
    assert "It is reached at SSL://[::1]:1, A://b:2." in sentence("/brokers/ids/0", node.encode())
    assert "It is reached at PLAINTEXT://[::1]:1." in sentence(
        "/brokers/ids/0", b'{"host": "::1", "port": 1, "version": 1, "timestamp": "0"}'
    )


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_keys_of_kafka_0_8_may_have_addresses_of_ipv6(host: str) -> None:
    config = load(None, with_listeners({"host.name": host, "port": "1", "advertised.host.name": host}))
    assert (config.listeners, config.advertised_listeners) == (("PLAINTEXT://[::1]:1",), ("PLAINTEXT://[::1]:1",))
