"""Brokers that check signed tokens (OAUTHBEARER): keys that change or are away, and tokens that expire."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.metadata.new_topic import NewTopic
from odradek.model import AuthenticationError, ConfigurationError, ErrorCode, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from odradek.wire.client_authentication import ClientSecurity
from odradek.wire.client_connection import ClientConnection, open_connection

KEYS: Final = {
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "listeners": "SASL://broker:9092",
    "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
    "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    "listener.name.sasl.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="broker" password="b" user_broker="b";'
    ),
}

FETCH: Final = {
    "replica_id": -1,
    "max_wait": 30_000,
    "min_bytes": 1,
    "max_bytes": 1000,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": [],
    "rack_id": "",
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
}


class Issuer:
    """An issuer whose JWKS is a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.keys = {"first": ec.generate_private_key(ec.SECP256R1())}
        self.publish()

    def publish(self) -> None:
        found = [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid} for kid, key in self.keys.items()]
        self.file.write_text(json.dumps({"keys": found}))

    def world(self, seed: int, **more: str) -> World:
        return World(seed, {**KEYS, "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.file}", **more})

    def token(self, world: World, kid: str = "first", lifetime_s: int = 3600) -> str:
        now_s = world.runtime.clock.now_ms() // 1000
        claims = {"sub": "alice", "iat": now_s, "exp": now_s + lifetime_s}
        return jwt.encode(claims, self.keys[kid], "ES256", headers={"kid": kid})


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


async def authenticate(world: World, token: str) -> tuple[ClientConnection, Any]:
    """Return a connection and the last response of its exchange."""
    connection = await open_connection(
        world.simulation.runtime("client"),
        world.hosts[0],
        9092,
        client_id="c",
        request_timeout_ms=60_000,
        setup_timeout_ms=5_000,
        max_response_bytes=1 << 20,
        security=ClientSecurity(),
    )
    await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "OAUTHBEARER"})
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    answer = await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": first})
    if answer.auth_bytes:
        answer = await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\x01"})
    return connection, answer


async def is_accepted(world: World, token: str) -> bool:
    connection, answer = await authenticate(world, token)
    connection.close()
    return bool(answer.error_code is ErrorCode.none)


def test_clients_produce_and_consume_and_renew_their_sessions_with_new_tokens(seed: int, issuer: Issuer) -> None:
    world, asked = issuer.world(seed), 0

    def provider() -> str:
        nonlocal asked
        asked += 1
        return issuer.token(world, lifetime_s=10)

    async def scene(world: World) -> None:
        await world.start()
        settings: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_provider": provider,
        }
        async with world.producer("producer", **settings) as producer, world.consumer("c", "t", **settings) as consumer:
            await producer.send("t", b"first")
            assert [record.value for record in await consumer.poll(10_000)] == [b"first"]
            # A fetch that waits for longer than the token lives.
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(45)
            assert {str(each.principal) for each in world.broker.server.sessions} >= {"User:alice"}
            await producer.send("t", b"second")
            assert [record.value for record in await waiting] == [b"second"]
        assert asked > 5

    world.run(scene)


def test_a_fetch_that_waits_while_its_token_expires_is_the_last_request_that_is_answered(
    seed: int, issuer: Issuer
) -> None:
    async def scene(world: World) -> None:
        await world.start()
        connection, answer = await authenticate(world, issuer.token(world, lifetime_s=10))
        assert 9 <= answer.session_lifetime.total_seconds() <= 10
        await world.broker.create_topics([NewTopic(name="t")])
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        topic = {"topic": "t", "topic_id": world.broker.image.topics["t"].topic_id, "partitions": [FETCH | partition]}
        assert not (await connection.request(ApiKey.FETCH, {**FETCH, "topics": [topic]})).error_code
        assert world.now_s > 30
        with pytest.raises(UnavailableError, match="closed"):
            await connection.request(ApiKey.FETCH, {**FETCH, "topics": [topic]})

    issuer.world(seed).run(scene)


def test_a_new_key_is_known_soon_after_its_first_token_and_a_removed_one_after_the_refresh(
    seed: int, issuer: Issuer
) -> None:
    async def scene(world: World) -> None:
        await world.start()
        assert await is_accepted(world, issuer.token(world))
        issuer.keys["second"] = ec.generate_private_key(ec.SECP256R1())
        issuer.publish()
        assert not await is_accepted(world, issuer.token(world, "second"))
        await asyncio.sleep(11)
        assert not await is_accepted(world, issuer.token(world, "second"))
        await asyncio.sleep(1)
        assert await is_accepted(world, issuer.token(world, "second"))
        first = issuer.token(world)
        del issuer.keys["first"]
        issuer.publish()
        await asyncio.sleep(301)
        assert not await is_accepted(world, first)
        assert await is_accepted(world, issuer.token(world, "second"))

    issuer.world(seed, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "300000"}).run(scene)


def test_the_keys_stay_while_they_cannot_be_read_again(
    seed: int, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await world.start()
        issuer.file.unlink()
        await asyncio.sleep(100)
        assert await is_accepted(world, issuer.token(world))
        issuer.file.write_text("no keys")
        await asyncio.sleep(100)
        assert await is_accepted(world, issuer.token(world))
        issuer.keys["second"] = ec.generate_private_key(ec.SECP256R1())
        issuer.publish()
        await asyncio.sleep(11)
        assert await is_accepted(world, issuer.token(world, "second"))

    with caplog.at_level(logging.WARNING):
        issuer.world(seed, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "30000"}).run(scene)
    assert "the last ones stay in use: it is not a JSON Web Key Set" in caplog.text


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "OAUTHBEARER on the listener SASL needs keys that sign tokens"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "data:,x"}, "a URL with https, http or file, not 'data:,x'"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"}, "can't read the keys at file:///nowhere: "),
        (
            {"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": "org.OAuthBearerUnsecured"},
            "unsigned tokens are not accepted",
        ),
    ],
)
def test_a_broker_without_keys_does_not_start(seed: int, issuer: Issuer, keys: dict[str, str], said: str) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ConfigurationError, match=said):
            await world.start()

    issuer.world(seed, **keys).run(scene)


def test_a_missing_package_is_one_sentence(seed: int, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        monkeypatch.setitem(sys.modules, "jwt", None)
        with pytest.raises(ConfigurationError, match=r"need jwt, which is not installed: pip install 'odradek\[sec"):
            await world.start()

    issuer.world(seed).run(scene)


def test_a_refused_token_is_an_error_with_its_reason(seed: int, issuer: Issuer) -> None:
    async def scene(world: World) -> None:
        await world.start()
        settings: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_provider": lambda: issuer.token(world, lifetime_s=-60),
        }
        with pytest.raises(AuthenticationError, match=r"OAUTHBEARER: .*invalid token: it has expired"):
            async with world.producer("producer", **settings):
                pass

    issuer.world(seed).run(scene)
