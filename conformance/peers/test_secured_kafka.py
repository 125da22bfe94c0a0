"""Our clients and the command line reach a secured Apache Kafka, by TLS and each SASL mechanism (X2)."""

import asyncio
import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from bench.peers.kafka_peer import KafkaBroker
from conformance.peers.compare_with_kafka import KAFKA_OPTIONS, OPTIONS
from odradek.cli import main
from odradek.clients import Admin, Consumer, Producer
from odradek.clients.admin import NewTopic
from odradek.clients.cluster import open_cluster
from odradek.model import AuthenticationError, ConfigurationError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import SystemClock
from odradek.spark.local.java import find_java

pytestmark = pytest.mark.needs("kafka")

MODULES: Final = "org.apache.kafka.common.security"
PASSWORD: Final = "geheim, = und mehr"
REAUTHENTICATION_MS: Final = 1_300
"""Kafka refuses to renew a session twice within a second."""
AT_ONCE_S: Final = 10.0
RENEWED: Final = "renewed"
"""The topic of the clients whose sessions are renewed."""
OF_KAFKA: Final = {
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL"
    ),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.tls.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    **{
        f"listener.name.{name}.{key}": value
        for name in ("sasl", "both")
        for key, value in {
            "plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
            "scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        }.items()
    },
    "listener.name.both.scram-sha-512.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
}
ALICE: Final = {"sasl_username": "alice", "sasl_password": PASSWORD}


class Secured:
    """A secured broker of Kafka, and a client's settings for each way to it."""

    def __init__(self, kafka: KafkaBroker, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        tls = {"ssl_truststore_location": str(folder / "ca.pem")}
        self.ways: dict[str, dict[str, Any]] = {
            "certificate": self._way("TLS", "SSL", ssl_keystore_location=str(folder / "client.pem"), **tls),
            "both": self._way("BOTH", "SASL_SSL", sasl_mechanism="SCRAM-SHA-512", **ALICE, **tls),
            **{
                each: self._way("SASL", "SASL_PLAINTEXT", sasl_mechanism=each, **ALICE)
                for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
            },
            "OAUTHBEARER": self._way(
                "SASL",
                "SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=f"file://{folder}/token",
            ),
        }

    def _way(self, listener: str, protocol: str, **settings: str) -> dict[str, Any]:
        return {"bootstrap_servers": self.kafka.address_of(listener), "security_protocol": protocol, **settings}


@pytest.fixture(scope="module", name="secured")
def fixture_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("server", "client"):
        leaf = authority.issue_cert("127.0.0.1", common_name=name)
        (folder / f"{name}.pem").write_bytes(_pkcs8(leaf) + b"".join(each.bytes() for each in leaf.cert_chain_pems))
    (folder / "token").write_text(_unsecured_token())
    files = {"ssl.keystore.location": str(folder / "server.pem"), "ssl.truststore.location": str(folder / "ca.pem")}
    with KafkaBroker(
        folder / "kafka",
        options=OPTIONS | KAFKA_OPTIONS | OF_KAFKA | files,
        heap="384M",
        short_lived=True,
        listeners=("TLS", "SASL", "BOTH"),
    ) as kafka:
        secured = Secured(kafka, folder)
        asyncio.run(_create_users_and_topics(secured))
        yield secured


def _pkcs8(leaf: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _unsecured_token() -> str:
    now_s = SystemClock().now_ms() / 1000
    claims = {"sub": "alice", "iat": now_s, "exp": now_s + 3600}
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": "none"}, claims))
    return b".".join(parts).decode() + "."


async def _create_users_and_topics(secured: Secured) -> None:
    async with open_cluster(secured.kafka.bootstrap_servers) as cluster:
        for number, hash_name in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), b"salt", 4096)
            credential = {"mechanism": number, "iterations": 4096, "salt": b"salt", "salted_password": salted}
            message = {"deletions": [], "upsertions": [{"name": "alice", **credential}]}
            answer = await cluster.request_any(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message)
            assert [each.error_code.name for each in answer.results] == ["none"], answer
    async with Admin(secured.kafka.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=name) for name in (RENEWED, *map(_topic, secured.ways))])


def _topic(way: str) -> str:
    return f"topic-{way}"


WAYS: Final = ("certificate", "both", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.mark.parametrize("way", WAYS)
def test_clients_and_commands_write_and_read_a_record(secured: Secured, way: str, tmp_path: Path) -> None:
    settings, topic = secured.ways[way], _topic(way)

    async def scene() -> None:
        async with Admin(**settings) as admin:
            assert topic in {each.name for each in await admin.list_topics()}
        async with Producer(**settings) as producer:
            await (await producer.send(topic, b"of the producer"))
        async with Consumer(topic, **settings, group_id=f"g-{way}", auto_offset_reset="earliest") as consumer:
            assert (await anext(consumer)).value == b"of the producer"
            await consumer.commit()

    asyncio.run(asyncio.wait_for(scene(), 60))
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
    run = CliRunner().invoke
    (tmp_path / "record").write_text("of the command")
    written = run(main, ["produce", topic, str(tmp_path / "record"), "--command-config", str(file)])
    assert written.exit_code == 0, written.output
    read = run(main, ["consume", topic, "--command-config", str(file), "-o", "0:2"])
    assert read.exit_code == 0, read.output
    assert "of the producer" in read.output
    assert "of the command" in read.output


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256", "both"])
def test_a_wrong_password_is_an_error_at_once(secured: Secured, way: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(AT_ONCE_S):
            async with Producer(**{**secured.ways[way], "sasl_password": "wrong"}):
                pass

    with pytest.raises(AuthenticationError, match="Authentication failed"):
        asyncio.run(scene())


def test_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    async def scene() -> None:
        settings = {key: value for key, value in secured.ways["certificate"].items() if "keystore" not in key}
        async with asyncio.timeout(AT_ONCE_S), Producer(**settings, max_block_ms=2_000):
            pass

    with pytest.raises((AuthenticationError, UnavailableError), match=r"certificate|connection was lost"):
        asyncio.run(scene())


def test_sessions_are_renewed_while_records_are_written(secured: Secured) -> None:
    async def scene() -> int:
        sent = 0
        async with Producer(**secured.ways["both"], linger_ms=0) as producer, asyncio.timeout(60):
            ends_at = asyncio.get_running_loop().time() + 2.5 * REAUTHENTICATION_MS / 1000
            while asyncio.get_running_loop().time() < ends_at:
                await (await producer.send(RENEWED, b"x"))
                sent += 1
            assert producer.metrics()["record_retry_total"] == 0
        return sent

    assert asyncio.run(scene()) > 10


def test_a_truststore_of_javas_tools_is_read_and_a_jks_store_is_refused(secured: Secured) -> None:
    keytool = str(find_java().home / "bin" / "keytool")
    for kind in ("PKCS12", "JKS"):
        subprocess.run(
            [keytool, "-importcert", "-noprompt", "-alias", "ca", "-file", str(secured.folder / "ca.pem"),
             "-keystore", str(secured.folder / f"trust.{kind}"), "-storetype", kind, "-storepass", "changeit"],
            check=True, capture_output=True,
        )  # fmt: skip

    async def scene(kind: str) -> None:
        settings = secured.ways["both"] | {
            "ssl_truststore_location": str(secured.folder / f"trust.{kind}"),
            "ssl_truststore_password": "changeit",
        }
        async with asyncio.timeout(AT_ONCE_S), Producer(**settings):
            pass

    asyncio.run(scene("PKCS12"))
    with pytest.raises(ConfigurationError, match=r"is a JKS store\. Convert it: keytool -importkeystore"):
        asyncio.run(scene("JKS"))
