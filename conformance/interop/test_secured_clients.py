"""Existing clients and ours with TLS and SASL: each writes a record and reads it, or is refused (X9)."""

import asyncio
import gc
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import jwt
import kafka
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.peers.franz_go_client import franz_go
from bench.peers.kafka_peer import kafka_home
from odradek import clients
from odradek.clients import blocking
from odradek.runtime import SystemClock
from odradek.testing import Cluster, eventually

DEADLINE_S: Final = 30.0
KINDS: Final = [
    ("ssl", "PLAIN"),
    ("sasl_plaintext", "PLAIN"),
    ("sasl_ssl", "SCRAM-SHA-256"),
    ("sasl_ssl", "SCRAM-SHA-512"),
    ("sasl_ssl", "OAUTHBEARER"),
]
Settings = dict[str, Any]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Cluster]]:
    users = {"alice": 'se"c\\ret', "bob": 'pä,=ss"word'}
    made = {kind: Cluster(security=kind, users=users) for kind in dict(KINDS)}
    try:
        for cluster in made.values():
            cluster.start()
        yield made
    finally:
        for cluster in made.values():
            cluster.stop()


def with_confluent(settings: Settings, topic: str) -> bytes | None:
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"x")
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def with_kafka_python(settings: Settings, topic: str) -> bytes | None:
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"x").get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
    value: bytes | None = next(consumer).value
    consumer.close()
    return value


def with_aiokafka(settings: Settings, topic: str) -> bytes | None:
    async def scene() -> bytes | None:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x")
        async with aiokafka.AIOKafkaConsumer(
            topic, **settings, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            value: bytes | None = (await consumer.getone()).value
            return value

    return asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


def with_ours(settings: Settings, topic: str) -> bytes | None:
    async def scene() -> bytes | None:
        async with clients.Producer(**settings) as producer:
            await producer.send(topic, b"x")
        async with clients.Consumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            return (await consumer.poll(30_000))[0].value

    return asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


def with_ours_blocking(settings: Settings, topic: str) -> bytes | None:
    with blocking.Producer(**settings) as producer:
        producer.send(topic, b"x").result()
    with blocking.Consumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        return consumer.poll(30_000)[0].value


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(("security", "mechanism"), KINDS)
@pytest.mark.parametrize(
    ("client", "play"),
    [
        ("confluent-kafka", with_confluent),
        ("kafka-python", with_kafka_python),
        ("aiokafka", with_aiokafka),
        ("odradek", with_ours),
        ("odradek", with_ours_blocking),
    ],
)
def test_a_client_writes_and_reads_with_the_settings_of_the_cluster(
    clusters: dict[str, Cluster], security: str, mechanism: str, client: str, play: Callable[[Settings, str], bytes]
) -> None:
    cluster, topic = clusters[security], f"{play.__name__}.{mechanism}"
    cluster.create_topic(topic)
    user = "bob" if mechanism.startswith("SCRAM") else "alice"
    assert play(cluster.settings(user, client, mechanism=mechanism), topic) == b"x"
    gc.collect()  # aiokafka leaves a transport of TLS open if its loop ends right after it has closed


def forged(_: str) -> tuple[str, float]:
    """Return a token that another key has signed, and when it expires."""
    now_s = SystemClock().now_ms() / 1000
    claims = {"sub": "alice", "iss": "https://issuer", "aud": ["kafka"], "iat": int(now_s), "exp": int(now_s) + 300}
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(claims, key, "RS256", headers={"kid": "k"}), now_s + 300


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        ("SCRAM-SHA-512", {"sasl.password": "wrong"}),
        ("OAUTHBEARER", {"sasl.oauthbearer.method": "default", "oauth_cb": forged}),
    ],
)
def test_librdkafka_is_refused_with_a_wrong_secret(
    clusters: dict[str, Cluster], mechanism: str, wrong: Settings
) -> None:
    codes: list[int] = []
    settings = clusters["sasl_ssl"].settings("alice", "confluent-kafka", mechanism=mechanism)
    producer = confluent_kafka.Producer({**settings, **wrong, "error_cb": lambda error: codes.append(error.code())})
    eventually(lambda: (producer.poll(0.1), codes)[1], within_s=DEADLINE_S)
    assert codes[0] == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.needs("franz-go")
@pytest.mark.parametrize(("security", "mechanism"), [*KINDS, ("sasl_ssl", "PLAIN")])
def test_franz_go_writes_and_reads(clusters: dict[str, Cluster], security: str, mechanism: str) -> None:
    settings, topic = clusters[security].settings("alice", "confluent-kafka", mechanism=mechanism), f"go.{mechanism}"
    clusters[security].create_topic(topic)
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    for command in (["produce", topic, "x", "y"], ["-X", f"group.id={topic}", "consume", topic, "2"]):
        done = subprocess.run([franz_go(), *options, *command], timeout=DEADLINE_S, capture_output=True, check=False)
        assert (done.stdout, done.stderr) == (b"0 0 x\n0 1 y\n", b"")


@pytest.mark.needs("kcat")
def test_kcat_writes_and_reads_over_sasl_ssl(clusters: dict[str, Cluster]) -> None:
    """By PLAIN: librdkafka before 2.6.1 sends another nonce in SCRAM than the server's, which Kafka 4 refuses, too."""
    settings = clusters["sasl_ssl"].settings("alice", "confluent-kafka")
    clusters["sasl_ssl"].create_topic("kcat")
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    subprocess.run(["kcat", "-P", "-t", "kcat", *options], input=b"x\n", check=True, timeout=DEADLINE_S)
    read = ["kcat", "-C", "-q", "-t", "kcat", "-o", "beginning", "-e", *options]
    assert subprocess.run(read, check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE).stdout == b"x\n"


@pytest.mark.needs("kafka")
def test_kafkas_console_tools_write_with_a_certificate_and_read_with_scram(
    clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"

    def arguments(cluster: Cluster) -> list[str]:
        settings = cluster.settings("alice", "java", mechanism="SCRAM-SHA-512")
        escaped = {key: value.replace("\\", "\\\\") for key, value in settings.items()}
        file.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))
        cluster.create_topic("java")
        return ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "java", "--command-config", str(file)]

    home, written_to, read_from = kafka_home(), clusters["ssl"], clusters["sasl_ssl"]
    command = home.command("org.apache.kafka.tools.ConsoleProducer", *arguments(written_to))
    subprocess.run(command, input=b"x\n", check=True, timeout=DEADLINE_S, capture_output=True)
    with written_to.consumer("java") as consumer:
        assert [record.value for record in consumer.poll(10_000)] == [b"x"]
    options = [*arguments(read_from), "--from-beginning", "--max-messages", "1"]
    with read_from.producer() as producer:
        producer.send("java", b"x").result()
    output = home.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *options)
    assert output.splitlines()[0] == "x"
