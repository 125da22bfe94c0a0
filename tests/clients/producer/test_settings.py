"""The producer's keys: Kafka's names and defaults, and what is said of others."""

from collections.abc import Mapping
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.clients.producer.settings import ProducerSettings, producer_settings
from odradek.clients.settings import settings_of_properties
from odradek.config.definition import definitions
from odradek.model import ConfigurationError

KAFKA_DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "batch.size": 16_384,
    "buffer.memory": 33_554_432,
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "none",
    "compression.zstd.level": 3,
    "delivery.timeout.ms": 120_000,
    "enable.idempotence": True,
    "linger.ms": 5,
    "max.block.ms": 60_000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1_048_576,
    "metadata.max.age.ms": 300_000,
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "partitioner.ignore.keys": False,
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30_000,
    "transaction.timeout.ms": 60_000,
    "transaction.two.phase.commit.enable": False,
    "transactional.id": None,
    "retries": 2_147_483_647,
    "retry.backoff.max.ms": 1_000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "sasl.jaas.config": None,
    "sasl.oauthbearer.client.credentials.client.id": None,
    "sasl.oauthbearer.client.credentials.client.secret": None,
    "sasl.oauthbearer.scope": None,
    "sasl.oauthbearer.token.endpoint.url": None,
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.key.password": None,
    "ssl.keystore.certificate.chain": None,
    "ssl.keystore.key": None,
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.truststore.certificates": None,
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "socket.connection.setup.timeout.ms": 10_000,
}
"""Kafka 4.0's documentation of producer configurations."""

ABSENT = [
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "interceptor.classes",
    "key.serializer",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "sasl.login.callback.handler.class",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "ssl.ca.location",
    "ssl.protocol",
    "value.serializer",
]


def test_defaults_are_kafkas() -> None:
    keys = definitions(ProducerSettings)
    assert {name: key.default for name, key in keys.items() if not key.kafka} == KAFKA_DEFAULTS


@pytest.mark.parametrize("key", ABSENT)
def test_a_key_of_kafkas_that_is_absent_is_refused_with_the_reason(key: str) -> None:
    keyword = key.replace(".", "_")
    with pytest.raises(ConfigurationError, match=f"{keyword} is not supported here: .{{15}}"):
        producer_settings({keyword: "x"})
    with pytest.raises(ConfigurationError, match=f"{key} is not supported here"):
        settings_of_properties({key: "x"}, ProducerSettings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lingerms": 5}, "no configuration key 'lingerms'; did you mean linger_ms"),
        ({"buffer_memry": 5}, "did you mean buffer_memory"),
        ({"compression_gzip_level": 0}, "compression.gzip.level cannot be 0"),
        ({"compression_zstd_level": 23}, "no more than 22"),
        ({"partitioner": "sticky", "partitioner_class": "sticky"}, "the same: give one of them"),
        ({"partitioner": "roundrobin"}, "unknown partitioner 'roundrobin': use one of classic, sticky, adaptive"),
        ({"transactional_id": ""}, "transactional_id is empty"),
        ({"transactional_id": "x", "acks": 1}, "transactional_id needs acks=all, not 1"),
        ({"transactional_id": "x", "enable_idempotence": False}, "transactional_id needs enable_idempotence"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
        (
            {"transactional_id": "x", "transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 1_000},
            "prepared transactions have no timeout",
        ),
        ({"security_protocol": "TLS"}, "security.protocol: String must be one of: PLAINTEXT"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Producer(**settings)


def test_a_batch_size_of_0_sends_each_record_alone(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        for _ in range(3):
            await producer.send("t", b"x", partition=0)

    play(log, scene, batch_size=0)
    assert [batch.header.record_count for batch in log.taken] == [1, 1, 1]
