"""Property files that were written for Kafka's tools, as settings of our clients."""

from typing import Any, Final

import pytest

from conformance.peers.client_files import BOOTSTRAP
from odradek.clients import Consumer
from odradek.clients.consumer.settings import ConsumerSettings, consumer_settings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import ClientSettings, make_settings, settings_of_properties
from odradek.config.broker import BrokerConfig
from odradek.config.properties import parse_properties
from odradek.model import ConfigurationError, bootstrap_addresses
from odradek.spark.options import parse_read_options

CLASSES: Final = (ConsumerSettings, ClientSettings, ProducerSettings)
CONFLUENT_CLOUD: Final = """\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-1.eu.example:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="k" password="s";
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000
acks=all
# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-1.example
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=key:secret
"""
IGNORED: Final = """
client.dns.lookup schema.registry.url basic.auth.credentials.source basic.auth.user.info key.serializer
value.serializer key.deserializer value.deserializer interceptor.classes metric.reporters metrics.recording.level
security.providers ssl.cipher.suites ssl.protocol ssl.provider ssl.engine.factory.class ssl.keymanager.algorithm
ssl.secure.random.implementation ssl.client.auth sasl.kerberos.service.name sasl.login.callback.handler.class
sasl.client.callback.handler.class sasl.login.refresh.window.factor sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.url sasl.enabled.mechanisms schema.registry.ssl.truststore.location
producer.ssl.truststore.location consumer.sasl.jaas.config admin.security.protocol confluent.monitoring.interval.ms
producer.acks auto.register.schemas specific.avro.reader connections.max.idle.ms send.buffer.bytes linger.mss
topic brokers zookeeper.connect exclude.internal.topics.x replication.factor bootstrap.server group.idd
config.providers plugin.path listeners
"""
"""Keys that Kafka's tools take without a word or with a warning, and that change no connection of ours."""
REFUSED: Final = """
ssl.truststore.locaton ssl.trustore.location ssl.ca.location ssl.ca.pem ssl.key.location ssl.certificate.location
ssl.verify ssl.enabled ssl.truststore.passwrod ssl.endpoint.identification.algoritm ssl.keystore.file SSL.protocol
sasl.mechanisms sasl.user sasl.jaas sasl.jaas.confg sasl.mechanisn sasl.oauthbearer.method sasl.login sasl.
security.protocl security.protocols security.enabled security.inter security_protocol sasl_mechanism
ssl_truststore_location secruity.protocol scurity.protocol sals.jaas.config sasl-jaas.config ssltruststore.location
ssl.truststore_location Security.Protocol SASL.JAAS.CONFIG ssl.truststore.location.2
"""
"""Keys whose author expects protection, and that Kafka does not have."""


def test_the_file_of_a_cloud_is_taken_with_a_remark_for_each_key_without_effect() -> None:
    remarks: list[str] = []
    found = settings_of_properties(parse_properties(CONFLUENT_CLOUD), *CLASSES, ignored=remarks.append)
    assert found == {
        "bootstrap_servers": "pkc-1.eu.example:9092", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="k" '
        'password="s";',
        "session_timeout_ms": "45000",
    }  # fmt: skip
    assert [remark.split("'")[1] if "'" in remark else remark.split()[0] for remark in remarks] == [
        "client.dns.lookup", "schema.registry.url", "basic.auth.credentials.source", "basic.auth.user.info",
    ]  # fmt: skip
    assert "secret" not in str(remarks)


@pytest.mark.parametrize("key", IGNORED.split())
def test_a_key_that_kafka_or_another_program_has_is_ignored_with_a_reason(key: str) -> None:
    remarks: list[str] = []
    assert settings_of_properties({key: "x", "group.id": "g"}, *CLASSES, ignored=remarks.append) == {"group_id": "g"}
    assert len(remarks) == 1
    assert key in remarks[0]
    with pytest.raises(ConfigurationError):
        settings_of_properties({key: "x"}, *CLASSES)


@pytest.mark.parametrize("key", REFUSED.split())
def test_a_key_that_looks_like_one_of_security_is_an_error(key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no configuration key|is not supported here"):
        settings_of_properties({key: "x"}, *CLASSES, ignored=lambda _: None)


@pytest.mark.parametrize("key", ["max_poll_recods", "schema_registry_url", "client_dns_lookup", "bootstrap_server"])
def test_a_keyword_argument_that_no_client_has_stays_an_error(key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        Consumer("t", **{key: "x"})  # type: ignore[call-overload,arg-type,unused-ignore]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("security_protocol", "plaintext", "PLAINTEXT"),
        ("security_protocol", "Sasl_Ssl", "SASL_SSL"),
        ("security_protocol", " ssl ", "SSL"),
        ("group_protocol", "CONSUMER", "consumer"),
        ("group_protocol", "Classic", "classic"),
        ("ssl_truststore_type", "pem", "PEM"),
        ("ssl_keystore_type", "Pkcs12", "PKCS12"),
        ("ssl_keystore_type", "jks", "JKS"),
        ("ssl_endpoint_identification_algorithm", "HTTPS", "HTTPS"),
        ("ssl_endpoint_identification_algorithm", "Https", "https"),
        ("enable_auto_commit", "TRUE", True),
        ("isolation_level", "READ_COMMITTED", None),
        ("auto_offset_reset", "EARLIEST", None),
        ("sasl_mechanism", "plain", None),
        ("security_protocol", "TLS", None),
        ("group_protocol", "", None),
    ],
)
def test_values_are_compared_without_case_where_kafka_does(key: str, text: str, value: Any) -> None:
    given = {key: text, "group_id": "g"}
    if value is None:
        with pytest.raises(ConfigurationError):
            consumer_settings(given)
        return
    assert getattr(consumer_settings(given), key) == value
    (known,) = settings_of_properties({key.replace("_", "."): text}, ConsumerSettings).items()
    assert known == (key, text if isinstance(value, bool) else value)


def test_values_of_brokers_are_compared_without_case_where_kafka_does() -> None:
    assert (
        BrokerConfig.parse({"group.consumer.migration.policy": "UPGRADE"}).group_consumer_migration_policy == "upgrade"
    )
    assert BrokerConfig.parse({"ssl.truststore.type": "jks"}).ssl_truststore_type == "JKS"
    with pytest.raises(ConfigurationError):
        BrokerConfig.parse({"ssl.client.auth": "REQUIRED"})


@pytest.mark.parametrize("text", BOOTSTRAP)
def test_bootstrap_servers_are_alike_in_clients_and_in_spark(text: str) -> None:
    addresses = BOOTSTRAP[text]
    options = {"kafka.bootstrap.servers": text, "subscribe": "t"}
    if addresses is None:
        for read in (
            lambda: bootstrap_addresses([text]),
            lambda: make_settings(ClientSettings, {"bootstrap_servers": text}),
            lambda: parse_read_options(options, streaming=True),
        ):
            with pytest.raises(ConfigurationError, match=r"HOST:PORT|needs brackets"):
                read()
        return
    assert make_settings(ClientSettings, {"bootstrap_servers": text}).bootstrap_servers == tuple(addresses)
    assert make_settings(ClientSettings, {"bootstrap_servers": [text]}).bootstrap_servers == tuple(addresses)
    assert parse_read_options(options, streaming=True).bootstrap_servers.split(",") == addresses
