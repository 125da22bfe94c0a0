"""Named listeners, and the keys of one of them (X2)."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import inter_broker_listener, listener_settings
from odradek.model import ConfigurationError, SecurityProtocol

KAFKAS = {
    "listeners": "INTERNAL://localhost:9093,EXTERNAL://localhost:9092",
    "advertised.listeners": "INTERNAL://broker1:9093,EXTERNAL://kafka.example.com:9092",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.external.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "listener.name.external.ssl.keystore.location": "/etc/kafka/external.pem",
    "listener.name.external.plain.sasl.jaas.config": "x.PlainLoginModule required user_alice=a;",
    "ssl.keystore.location": "/etc/kafka/broker.pem",
    "ssl.client.auth": "required",
}


def test_a_listeners_own_keys_win() -> None:
    config = BrokerConfig.parse(KAFKAS)
    external, internal = listener_settings(config, "EXTERNAL"), listener_settings(config, "INTERNAL")
    assert (external.protocol, internal.protocol) == (SecurityProtocol.SASL_SSL, SecurityProtocol.PLAINTEXT)
    assert external.security.ssl_keystore_location == "/etc/kafka/external.pem"
    assert internal.security.ssl_keystore_location == "/etc/kafka/broker.pem"
    assert external.security.sasl_enabled_mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert dict(external.logins) == {"PLAIN": "x.PlainLoginModule required user_alice=a;"}
    assert "LoginModule" not in f"{config!r} {external!r}", "passwords are not shown"
    assert (external.authenticates, internal.authenticates) == (True, False)
    assert not external.asks_for_certificate, "with SASL the broker's own ssl.client.auth does not hold (KIP-684)"
    assert inter_broker_listener(config) == "INTERNAL"


@pytest.mark.parametrize(
    ("keys", "listener"),
    [
        ({}, "INTERNAL"),
        ({"inter.broker.listener.name": "external"}, "EXTERNAL"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "EXTERNAL"),
    ],
)
def test_brokers_use_the_named_listener_or_the_first_of_the_protocol(keys: dict[str, str], listener: str) -> None:
    rest = {key: text for key, text in KAFKAS.items() if key != "inter.broker.listener.name"}
    assert inter_broker_listener(BrokerConfig.parse({**rest, **keys})) == listener


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"listeners": "A://localhost:1"}, "listener A has no security protocol"),
        ({"listeners": "SSL://localhost:1,SSL://localhost:2"}, "listeners has a name twice"),
        ({"advertised.listeners": "SSL://localhost:1"}, "advertised.listeners has SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "a protocol of PLAINTEXT, SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,PLAINTEXT:SSL"}, "each listener name once"),
        ({"inter.broker.listener.name": "OTHER"}, "OTHER, which is not an advertised listener"),
        ({"security.inter.broker.protocol": "SSL"}, "no advertised listener has it"),
        ({"listeners": "SASL_SSL://localhost:1"}, "no mechanism is enabled"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "one of: PLAIN, SCRAM-SHA-256"),
        ({"listener.name.plaintext.ssl.client.auht": "none"}, "no configuration key .*did you mean"),
        ({"listener.name.plaintext.ssl.client.auth": "maybe"}, "configuration ssl.client.auth: String must be one of"),
        ({"listener.name.plaintext.ssl.cipher.suites": "X"}, "suites are those of OpenSSL's"),
        ({"listener.name.plaintext.kerberos.sasl.jaas.config": "x"}, "no configuration key"),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(keys: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        BrokerConfig.parse(keys)


def test_a_file_of_another_operator_is_read() -> None:
    keys = {
        "ssl.keystore.type": "PKCS12",
        "ssl.endpoint.identification.algorithm": "HTTPS",
        "listener.name.external.ssl.secure.random.implementation": "SHA1PRNG",
        "listener.name.external.ssl.protocol": "TLSv1.2",
    }
    settings = listener_settings(BrokerConfig.parse({**KAFKAS, **keys}), "EXTERNAL")
    assert settings.security.ssl_keystore_type == "PKCS12"


def test_no_text_of_the_configuration_has_a_password() -> None:
    config = BrokerConfig.parse({**KAFKAS, "ssl.key.password": "hunter2", "sasl.jaas.config": "hunter3"})
    assert "hunter" not in repr(config)
    assert "user_alice" not in repr(config)
