"""The listener that `serve --page` uses."""

import pytest

from odradek.cli.page_listener import PageListener, page_listener
from odradek.config.load import load
from odradek.model import ConfigurationError

TLS = {"ssl.keystore.location": "/broker.pem"}
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'


def chosen(listeners: str, page: str = "127.0.0.1:8080", *, anonymous: bool = False, **keys: str) -> PageListener:
    protocols = "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    given = {"listeners": listeners, "listener.security.protocol.map": protocols, "log.dirs": "/data", **keys}
    return page_listener(load(None, given), page, is_network_allowed=anonymous)


def test_the_first_listener_is_used_or_a_plain_one_for_this_machine() -> None:
    assert chosen("PLAINTEXT://0.0.0.0:9092") == PageListener(name="PLAINTEXT", client={})
    both = "SASL_SSL://0.0.0.0:9093,LOCAL://127.0.0.1:9092"
    assert chosen(both, **TLS, **SCRAM) == PageListener(name="LOCAL", client={})
    assert chosen("SASL_PLAINTEXT://0.0.0.0:9093,LOCAL://0.0.0.0:9092", **SCRAM).name == "SASL_PLAINTEXT"
    advertised = {"advertised.listeners": "SASL_SSL://kafka-1:9093"}
    assert chosen(both, **TLS, **SCRAM, **advertised).name == "SASL_SSL", "clients do not get the other one's address"


def test_users_log_in_at_a_listener_with_sasl_whose_broker_is_trusted_by_its_own_certificate() -> None:
    found = chosen("SASL_SSL://0.0.0.0:9093", **TLS, **SCRAM)
    client = {"security_protocol": "SASL_SSL", "ssl_truststore_location": "/broker.pem"}
    assert found == PageListener(
        name="SASL_SSL", client={**client, "sasl_mechanism": "SCRAM-SHA-256"}, requires_login=True
    )
    keys = {**TLS, **SCRAM, "ssl.truststore.location": "/ca.pem"}
    assert chosen("SASL_SSL://0.0.0.0:9093", **keys).client["ssl_truststore_location"] == "/ca.pem"
    keys = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
    }
    assert chosen("SASL_PLAINTEXT://0.0.0.0:9093", **keys).client == {
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
    }  # fmt: skip


def test_a_listener_with_a_login_comes_before_one_with_tls_alone_and_one_for_certificates_is_passed_over() -> None:
    assert chosen("SSL://:9093,SASL_SSL://:9094", **TLS, **SCRAM).name == "SASL_SSL"
    assert not chosen("SSL://:9093", **TLS).requires_login
    mutual = {"ssl.client.auth": "required", "ssl.truststore.location": "/ca.pem"}
    assert chosen("SSL://:9093,PLAINTEXT://:9092", **TLS, **mutual).name == "PLAINTEXT"


def test_the_password_of_a_truststore_is_not_in_the_text_of_a_listener() -> None:
    found = chosen("SSL://:9093", **TLS, **{"ssl.truststore.location": "/ca.p12", "ssl.truststore.password": "secret"})
    assert found.client["ssl_truststore_password"] == "secret"
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "keys", [{"listeners": "SSL://:9093", "ssl.client.auth": "required", "ssl.truststore.location": "/ca.pem"},
             {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "OAUTHBEARER"}]
)  # fmt: skip
def test_a_listener_for_certificates_or_tokens_is_refused_with_what_to_do(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"add a listener on 127\.0\.0\.1, or run odradek page --command"):
        chosen(**keys, **TLS)


def test_a_page_for_other_machines_is_refused_as_it_has_no_tls() -> None:
    with pytest.raises(ConfigurationError, match="add --allow-anonymous-network"):
        chosen("PLAINTEXT://:9092", "0.0.0.0:8080")
    assert chosen("PLAINTEXT://:9092", "0.0.0.0:8080", anonymous=True).name == "PLAINTEXT"
    with pytest.raises(ConfigurationError, match=r"run odradek page with TLS and a login$"):
        chosen("SASL_PLAINTEXT://:9092", "0.0.0.0:8080", anonymous=True, **SCRAM)
