"""Clients of a secured cluster: logins, tokens, and settings that contradict each other (X2)."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.clients.admin import NewTopic
from odradek.clients.security import client_security
from odradek.clients.settings import ClientSettings, make_settings
from odradek.model import AuthenticationError, ConfigurationError, UnavailableError
from odradek.simulation.world import World
from tests.world.scenes import in_world

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEYS: Final = {
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "listeners": "SASL://broker:9092",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'{MODULE} username="broker" password="b" user_broker="b" user_alice="secret";'
    ),
}
ALICE: Final = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@in_world(KEYS, started=False)
async def test_producers_consumers_and_admins_authenticate(world: World) -> None:
    await world.start()
    async with world.admin(**ALICE) as admin:  # type: ignore[arg-type]
        await admin.create_topics([NewTopic(name="t")])
    async with world.producer("producer", **ALICE) as producer:
        await producer.send("t", b"hello")
    login = f'{MODULE} username="alice" password="secret";'
    async with world.consumer("c", "t", security_protocol="SASL_PLAINTEXT", sasl_jaas_config=login) as consumer:
        (record,) = await consumer.poll(10_000)
    assert record.value == b"hello"


@in_world(KEYS, started=False)
async def test_a_client_without_sasl_reads_which_key_to_set(world: World) -> None:
    await world.start()
    said = r"closed the connection at the first request: it may expect SASL \(set security.protocol to SASL_PLAINTEXT"
    with pytest.raises(UnavailableError, match=said):
        async with world.producer("producer", max_block_ms=3_000):
            pass


@in_world(KEYS, started=False)
async def test_a_wrong_password_fails_at_once(world: World) -> None:
    await world.start()
    wrong: dict[str, Any] = {**ALICE, "sasl_password": "wrong"}
    began_s = world.now_s
    with pytest.raises(AuthenticationError, match=r"broker broker:9092: PLAIN: .*invalid credentials"):
        async with world.producer("producer", **wrong):
            pass
    with pytest.raises(AuthenticationError, match=r"broker broker:9092: PLAIN: .*invalid credentials"):
        async with world.consumer("consumer", "t", group_id="g", **wrong) as consumer:
            await consumer.poll(10_000)
    assert world.now_s - began_s < 3


async def token_of(**settings: object) -> bytes:
    """Return the first token that a client with these settings sends."""
    made = make_settings(ClientSettings, {"security_protocol": "SASL_PLAINTEXT", **settings})
    login = client_security(made, World(0).simulation.runtime("client")).login
    assert login is not None
    token = (await login()).step(b"")
    assert token is not None
    return token


async def later() -> str:
    return "abc"


@pytest.mark.parametrize(
    ("provider", "token"), [(lambda: "abc", b"abc"), (later, b"abc"), ("platform:python_implementation", b"CPython")]
)
def test_a_function_its_awaitable_or_its_import_path_gives_the_token(provider: object, token: bytes) -> None:
    first = asyncio.run(token_of(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=provider))
    assert first == b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def test_a_file_gives_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    url = f"file://{tmp_path}/token"
    first = asyncio.run(token_of(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url))
    assert first == b"n,,\x01auth=Bearer abc\x01\x01"


def test_a_provider_that_returns_no_text_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="returned int, not the text of a token"):
        asyncio.run(token_of(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=lambda: 7))


SASL: Final = {"security_protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security_protocol": "TLS"}, "one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl_username": "alice"}, "has no effect while security.protocol is PLAINTEXT"),
        (SASL, "set sasl.mechanism to one of PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "one of: PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl_mechanism": "PLAIN"}, "needs a user name and a password: .*the username is missing"),
        ({**SASL, "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "a"}, "the password is missing"),
        (
            {**SASL, "sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": f"{MODULE};"},
            "the login module .* is for PLAIN",
        ),
        ({**SASL, "sasl_jaas_config": "x.ScramLoginModule required username=a password=b;"}, "set sasl.mechanism"),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, "needs a token: set sasl.oauthbearer.token.provider"),
        (
            {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "https://x/token"},
            "needs credentials",
        ),
        (
            {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": "no.such:thing"},
            "can't import no.such:thing",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/nowhere/ca.pem"}, "can't read /nowhere/ca.pem"),
        ({"ssl_ca_location": "x"}, "use ssl.truststore.location"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        client_security(make_settings(ClientSettings, settings), World(0).simulation.runtime("client"))


def test_no_text_of_the_settings_has_a_password() -> None:
    made = make_settings(ClientSettings, {**ALICE, "sasl_jaas_config": "hunter2", "ssl_key_password": "hunter3"})
    assert "secret" not in repr(made).replace("client_secret", "")
    assert "hunter" not in repr(made)
