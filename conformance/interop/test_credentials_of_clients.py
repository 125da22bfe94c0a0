"""Existing clients authenticate to a broker by SCRAM and OAUTHBEARER, and are refused with wrong secrets."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import jwt
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from odradek.cli import main
from odradek.clients import Consumer, Producer
from odradek.model import AuthenticationError
from odradek.runtime import SystemClock
from odradek.testing.servers.odradek_process import ServedBroker

SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORD: Final = 'pä,=ss"word'
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOPIC: Final = "secured"
DEADLINE_S: Final = 20.0
KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token(key: Any = KEY) -> str:
    now_s = SystemClock().now_ms() // 1000
    claims = {"sub": "alice", "iss": "https://issuer", "aud": ["kafka"], "iat": now_s, "exp": now_s + 300}
    return jwt.encode(claims, key, "RS256", headers={"kid": "k"})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose users are in the tree before it starts: its own login is one of them."""
    folder = tmp_path_factory.mktemp("secured")
    tree = f"sqlite:///{folder}/metadata.sqlite"
    for user, password in (("broker", "b"), ("alice", PASSWORD)):
        result = CliRunner().invoke(main, ["users", "add", user, "--metadata", tree], input=f"{password}\n")
        assert result.exit_code == 0, result.output
    (folder / "keys.json").write_text(
        json.dumps({"keys": [{**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k"}]})
    )
    options = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="broker" password="b";',
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys.json",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    broker = ServedBroker(folder / "data", options=options, metadata=tree)
    broker.start()
    yield broker.bootstrap_servers
    status, errors = broker.stop(), broker.errors.read_text()
    assert status == 0, errors
    assert "Traceback" not in errors, errors
    assert PASSWORD not in errors


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """aiokafka's."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


class BlockingProvider(KafkaPythonTokenProvider):  # type: ignore[misc]
    """kafka-python's."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text


def _settings(mechanism: str, password: str, bearer: object) -> dict[str, Any]:
    common = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**common, "sasl_oauth_token_provider": bearer}
    return {**common, "sasl_plain_username": "alice", "sasl_plain_password": password}


def with_aiokafka(servers: str, mechanism: str, password: str, bearer: str, value: bytes) -> bytes:
    async def work() -> bytes:
        settings = _settings(mechanism, password, Provider(bearer))
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
            sent = await producer.send_and_wait(TOPIC, value)
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, **settings) as consumer:
            partition = aiokafka.TopicPartition(TOPIC, sent.partition)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            found: bytes = (await consumer.getone()).value
            return found

    return asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def with_confluent(servers: str, mechanism: str, password: str, bearer: str, value: bytes) -> bytes:
    errors: list[Any] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "error_cb": errors.append,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (bearer, SystemClock().now_ms() / 1000 + 300)
    else:
        settings |= {"sasl.username": "alice", "sasl.password": password}
    places: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, value, on_delivery=lambda error, message: places.append(message))
    for _ in range(round(DEADLINE_S * 10)):
        producer.poll(0.1)
        if places:
            break
        if any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
            raise AuthenticationError(str(errors[0]))
    consumer = confluent_kafka.Consumer({**settings, "group.id": "confluent"})
    place = places[0]
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, place.partition(), place.offset())])
    try:
        found: bytes = consumer.poll(DEADLINE_S).value()
        return found
    finally:
        consumer.close()


def with_kafka_python(servers: str, mechanism: str, password: str, bearer: str, value: bytes) -> bytes:
    settings = _settings(mechanism, password, BlockingProvider(bearer))
    producer = kafka.KafkaProducer(bootstrap_servers=servers, **settings)
    sent = producer.send(TOPIC, value).get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=DEADLINE_S * 1000, **settings)
    partition = kafka.TopicPartition(TOPIC, sent.partition)
    consumer.assign([partition])
    consumer.seek(partition, sent.offset)
    found: bytes = next(consumer).value
    consumer.close()
    return found


def with_odradek(servers: str, mechanism: str, password: str, bearer: str, value: bytes) -> bytes:
    async def work() -> bytes:
        settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauthbearer_token_provider"] = lambda: bearer
        else:
            settings |= {"sasl_username": "alice", "sasl_password": password}
        async with Producer(servers, **settings) as producer:
            await producer.send(TOPIC, value)
        async with Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as consumer:
            values: list[bytes | None] = []
            while value not in values:
                values += [record.value for record in await consumer.poll(1000)]
        return value

    return asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


Client = Callable[[str, str, str, str, bytes], bytes]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [with_aiokafka, with_confluent, with_kafka_python, with_odradek])
def test_clients_that_know_the_secret_write_and_read(secured: str, client: Client, mechanism: str) -> None:
    value = f"{client.__name__} {mechanism}".encode()
    assert client(secured, mechanism, PASSWORD, token(), value) == value


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize("client", [with_confluent, with_odradek])
def test_clients_that_do_not_are_refused(secured: str, client: Client, mechanism: str) -> None:
    with pytest.raises(Exception, match=r"(?i)authenticat"):
        client(secured, mechanism, "wrong", token(OTHER_KEY), b"never")
