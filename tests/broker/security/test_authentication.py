"""Clients and brokers that authenticate by SASL, and those that cannot (X2)."""

import asyncio
import gc
import logging
import ssl
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import pytest
import trustme

from odradek.broker.security.listener_security import ListenerSecurity
from odradek.broker.security.session_authentication import SessionAuthentication
from odradek.clients import Admin
from odradek.clients.admin.results import RefusedUsersError
from odradek.clients.admin.user_credentials import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import listener_settings
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.model import AuthenticationError, ConfigurationError, ErrorCode, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import pending_connections
from odradek.security import ANONYMOUS
from odradek.security.sasl.scram import encode_credential, scram_credential
from odradek.simulation.world import Scenario, World
from odradek.wire.client_authentication import ClientSecurity
from odradek.wire.client_connection import ClientConnection, open_connection
from odradek.wire.client_security import password_login
from tests.world.scenes import in_world, played_by

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEYS: Final = {
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'{MODULE} username="broker" password="b" user_broker="b" user_alice="secret" user_bob="x";'
    ),
}


def keys(world: World, number: int = 0, **more: str) -> dict[str, str]:
    return {"listeners": f"SASL://{world.hosts[number]}:9092", **more}


async def start(world: World, **more: str) -> None:
    for number in range(len(world.hosts)):
        await world.start(number, **keys(world, number, **more))


async def connect(
    world: World, user: str | None, password: str = "secret", mechanism: str = "PLAIN"
) -> ClientConnection:
    runtime = world.simulation.runtime("client")
    login = None
    if user is not None:
        login = password_login(mechanism, {"username": user, "password": password}, runtime.entropy)
    return await open_connection(
        runtime,
        world.hosts[0],
        9092,
        client_id="c",
        request_timeout_ms=5_000,
        setup_timeout_ms=5_000,
        max_response_bytes=1 << 20,
        security=ClientSecurity(login=login),
    )


def metadata(topics: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


async def topics_of(connection: ClientConnection) -> list[str]:
    answer = await connection.request(ApiKey.METADATA, metadata(None))
    return [topic.name for topic in answer.topics]


def play(seed: int, scene: Scenario, brokers: int = 1) -> None:
    World(seed, KEYS, brokers=brokers).run(scene)


@played_by(play)
async def test_a_client_is_served_after_it_has_authenticated(world: World) -> None:
    await start(world)
    connection = await connect(world, "alice")
    assert await topics_of(connection) == []
    (session,) = world.broker.server.sessions
    assert str(session.principal) == "User:alice"


@pytest.mark.parametrize(
    ("user", "password", "mechanism", "said"),
    [
        ("alice", "wrong", "PLAIN", "PLAIN: Authentication failed: invalid credentials"),
        ("nobody", "x", "PLAIN", "invalid credentials"),
        ("alice", "secret", "SCRAM-SHA-256", "SCRAM-SHA-256: Authentication failed: invalid credentials"),
        ("alice", "secret", "SCRAM-SHA-512", "does not offer SCRAM-SHA-512, but PLAIN, SCRAM-SHA-256: set sasl.mechan"),
    ],
)
@played_by(play)
async def test_a_refused_client_gets_an_error_with_the_mechanism_and_the_broker_at_once(
    world: World, *, user: str, password: str, mechanism: str, said: str
) -> None:
    await start(world)
    began_s = world.now_s
    with pytest.raises(AuthenticationError, match=f"broker broker:9092: .*{said}"):
        await connect(world, user, password, mechanism)
    assert world.now_s - began_s < 1
    await asyncio.sleep(1)
    assert not world.broker.server.sessions


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(seed: int, password: str) -> None:
    def sessions() -> int:
        # Its type, not `isinstance`, which asks the object: a dead weak proxy of another test would raise.
        return sum(type(each) is SessionAuthentication for each in gc.get_objects())

    async def scene(world: World) -> None:
        await start(world)
        before = sessions()
        with suppress(AuthenticationError):
            (await connect(world, "alice", password)).close()
        await asyncio.sleep(1)
        assert not world.broker.server.sessions
        assert sessions() == before

    gc.collect()
    gc.disable()
    try:
        play(seed, scene)
    finally:
        gc.enable()


def test_silent_clients_do_not_keep_others_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 3)

    async def scene(world: World) -> None:
        await start(world)
        known = await connect(world, "alice")
        silent = [await world.client() for _ in range(3)]
        began_s = world.now_s
        connection = await connect(world, "alice")
        assert world.now_s - began_s < 1
        assert await silent[0].receive() is None, "the oldest one is closed"
        assert len(world.broker.server.sessions) == 4
        assert await topics_of(connection) == await topics_of(known) == [], "the authenticated ones stay"

    play(seed, scene)


@in_world(KEYS, seed=1, tree_s=0.02, started=False)
async def test_a_login_during_the_start_of_a_broker_waits_until_it_knows_the_users(world: World) -> None:
    credential = scram_credential("SCRAM-SHA-256", "secret", salt=b"salt", iterations=4096)
    await start(world)
    node = ConfigNode(config={"SCRAM-SHA-256": encode_credential(credential)})
    await world.store(0).create(paths.user_config("alice"), node.encode())
    await world.kill()
    starting = asyncio.create_task(start(world))
    connections = []
    while not starting.done():
        with suppress(UnavailableError):  # the ports are not open yet
            connections.append(await connect(world, "alice", "secret", "SCRAM-SHA-256"))
        await asyncio.sleep(0.001)
    await starting
    assert connections


@played_by(play)
async def test_a_refusal_is_delayed(world: World) -> None:
    await start(world, connection_failed_authentication_delay_ms="3000")
    began_s = world.now_s
    with pytest.raises(AuthenticationError):
        await connect(world, "alice", "wrong")
    assert 3 <= world.now_s - began_s < 4


@pytest.mark.parametrize(
    "api", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.UPDATE_METADATA, ApiKey.SASL_AUTHENTICATE]
)
@played_by(play)
async def test_no_request_but_apiversions_is_served_before_authentication(world: World, *, api: ApiKey) -> None:
    await start(world)
    client = await world.client()
    client.send_bytes(bytes((0, int(api), 0, 9 if api is ApiKey.METADATA else 3)) + b"\0\0\0\1\xff\xff" + bytes(40))
    assert await client.receive() is None, "the connection is closed without an answer"


@played_by(play)
async def test_a_large_frame_before_authentication_closes_the_connection(world: World) -> None:
    await start(world, sasl_server_max_receive_size="1024")
    connection = await connect(world, None)
    with pytest.raises(UnavailableError):
        await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "x" * 2000})
    connection = await connect(world, "alice")
    answer = await connection.request(ApiKey.METADATA, metadata([{"topic_id": UUID(int=0), "name": "x" * 2000}]))
    assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception


@played_by(play)
async def test_a_large_token_that_renews_a_session_closes_the_connection(world: World) -> None:
    """The limit of requests before authentication holds for its repetition, too: tokens are parsed at once."""
    await start(world, sasl_server_max_receive_size="1024")
    connection = await connect(world, "alice")
    await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    with pytest.raises(UnavailableError):
        await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": bytes(2000)})


@played_by(play)
async def test_a_session_is_renewed_before_it_ends_and_requests_meanwhile_are_answered(world: World) -> None:
    await start(world, connections_max_reauth_ms="10000")
    connection = await connect(world, "alice")
    while world.now_s < 100:
        assert await topics_of(connection) == []
        await asyncio.sleep(0.01)


@played_by(play)
async def test_a_session_that_is_not_renewed_is_closed(world: World) -> None:
    await start(world, connections_max_reauth_ms="10000")
    connection = await connect(world, None)
    await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    answer = await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0secret"})
    assert answer.session_lifetime.total_seconds() == 10
    await asyncio.sleep(9)
    assert await topics_of(connection) == []
    await asyncio.sleep(2)
    await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0secret"})
    assert await topics_of(connection) == [], "as in Kafka, an idle session may be renewed late"
    await asyncio.sleep(11)
    with pytest.raises(UnavailableError):
        await topics_of(connection)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_client_that_does_not_authenticate_is_closed(seed: int, *, has_begun: bool) -> None:
    async def scene(world: World) -> None:
        await start(world)
        connection = await connect(world, None)
        if has_begun:
            await asyncio.sleep(25)
            await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        await asyncio.sleep(31)
        assert connection.closed
        assert not world.broker.server.sessions

    play(seed, scene)


@played_by(play)
async def test_a_mechanism_that_is_not_enabled_ends_the_connection(world: World) -> None:
    await start(world)
    connection = await connect(world, None)
    answer = await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "GSSAPI"})
    assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
    await asyncio.sleep(1)
    assert connection.closed


@pytest.mark.parametrize("ends_by", ["handshake", "wrong password", "expiry"])
@played_by(play)
async def test_a_produce_like_the_last_one_is_refused_while_its_session_has_ended(
    world: World, *, ends_by: str
) -> None:
    await start(world, connections_max_reauth_ms="10000")
    client = await world.client()
    await client.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, 1)
    await client.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0secret"}, 1)
    await client.create_topic("t")
    for _ in range(2):
        assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    if ends_by == "expiry":
        await asyncio.sleep(11)
    else:
        await client.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, 1)
    if ends_by == "wrong password":
        client.send(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0no"}, 1)
    for _ in range(3):
        client.send_produce("t", world.batch(b"a"))
    while await client.receive() is not None:
        pass
    assert world.broker.partitions.leader_or_none("t", 0).log.log_end_offset == 2


@pytest.mark.parametrize(
    ("second", "error"),
    [(b"\0bob\0x", ErrorCode.sasl_authentication_failed), (b"\0alice\0no", ErrorCode.sasl_authentication_failed)],
)
@played_by(play)
async def test_a_session_is_renewed_only_by_its_own_user(world: World, *, second: bytes, error: ErrorCode) -> None:
    await start(world)
    connection = await connect(world, None)
    for token, expected in ((b"\0alice\0secret", ErrorCode.none), (second, error)):
        await connection.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        answer = await connection.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token})
        assert answer.error_code is expected
    with pytest.raises(UnavailableError):
        await topics_of(connection)


@played_by(play)
async def test_scram_users_are_in_the_tree_and_a_new_one_is_known_at_once(world: World) -> None:
    await start(world)
    credential = scram_credential("SCRAM-SHA-256", "geheim", salt=b"salt", iterations=4096)
    node = ConfigNode(config={"SCRAM-SHA-256": encode_credential(credential)})
    await world.store(0).create(paths.user_config("carol@example.com"), node.encode())
    await asyncio.sleep(1)
    connection = await connect(world, "carol@example.com", "geheim", "SCRAM-SHA-256")
    assert await topics_of(connection) == []
    await world.store(0).delete(paths.user_config("carol@example.com"))
    await asyncio.sleep(1)
    with pytest.raises(AuthenticationError):
        await connect(world, "carol@example.com", "geheim", "SCRAM-SHA-256")


def test_a_deleted_user_cannot_log_in_and_a_session_ends_when_it_has_to_be_renewed(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek.authorizer")

    async def scene(world: World) -> None:
        await world.start(**keys(world), connections_max_reauth_ms="10000")
        admin = Admin(
            world.servers,
            runtime=world.simulation.runtime("admin"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="broker",
            sasl_password="b",
        )
        async with admin:
            await admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(user="carol", mechanism=each, password="geheim")
                    for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                ]
            )
            info = [ScramCredentialInfo(mechanism=each, iterations=4096) for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
            assert await admin.describe_user_scram_credentials() == {"carol": info}
            connection = await connect(world, "carol", "geheim", "SCRAM-SHA-256")
            await asyncio.sleep(20)
            assert await topics_of(connection) == [], "the session was renewed"
            await admin.alter_user_scram_credentials(
                [UserScramCredentialDeletion(user="carol", mechanism="SCRAM-SHA-256")]
            )
            audit = [each.getMessage() for each in caplog.records if " has changed " in each.getMessage()]
            assert [text.partition(" has changed ")[2].partition(" by ")[0] for text in audit] == [
                "user 'carol': set SCRAM-SHA-256",
                "user 'carol': set SCRAM-SHA-512",
                "user 'carol': removed SCRAM-SHA-256",
            ]
            assert all(text.startswith("Principal = User:") and " from host = " in text for text in audit)
            assert "geheim" not in caplog.text
            assert await topics_of(connection) == []
            with pytest.raises(AuthenticationError):
                await connect(world, "carol", "geheim", "SCRAM-SHA-256")
            await asyncio.sleep(11)
            with pytest.raises(UnavailableError):
                await topics_of(connection)
            with pytest.raises(RefusedUsersError, match="user carol: Attempt to delete") as refused:
                await admin.alter_user_scram_credentials(
                    [UserScramCredentialDeletion(user="carol", mechanism="SCRAM-SHA-256")]
                )
            assert refused.value.errors.keys() == {"carol"}
            assert await admin.describe_user_scram_credentials(["carol", "dave"]) == {"carol": info[1:], "dave": []}

    World(seed, {**KEYS, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}).run(scene)


@played_by(play, brokers=3)
async def test_brokers_authenticate_to_each_other(world: World) -> None:
    await start(world)
    await world.create_topic("t", 3, 3)
    partitions = [broker.image.topics["t"].partitions.values() for broker in world.running.values()]
    assert all(len(each.isr) == 3 for some in partitions for each in some)
    names = {str(each.principal) for broker in world.running.values() for each in broker.server.sessions}
    assert "User:broker" in names


@in_world(started=False)
async def test_a_listener_without_sasl_refuses_the_handshake(world: World) -> None:
    await world.start()
    with pytest.raises(AuthenticationError, match="refused SASL"):
        await connect(world, "alice")


@pytest.mark.parametrize("reauthentication_ms", ["0", "5000"])
def test_the_connections_by_which_brokers_watch_each_other_log_in_and_detect_a_killed_broker(
    seed: int, reauthentication_ms: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await start(world, connections_max_reauth_ms=reauthentication_ms)
        await asyncio.sleep(300)
        for number in range(3):
            sessions = world.running[number].server.sessions
            assert {str(each.principal) for each in sessions} == {"User:broker"}
        assert "did not authenticate" not in caplog.text
        began = asyncio.get_running_loop().time()
        await world.kill(2)
        while 2 in world.running[0].image.brokers:
            await asyncio.sleep(0.05)
        assert asyncio.get_running_loop().time() - began < 2

    with caplog.at_level("INFO"):
        play(seed, scene, brokers=3)


@played_by(play)
async def test_brokers_without_a_login_for_each_other_do_not_start(world: World) -> None:
    with pytest.raises(ConfigurationError, match="brokers have no login for SCRAM-SHA-256"):
        await start(world, sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256")


@played_by(play)
async def test_no_client_can_read_the_passwords_of_a_broker(world: World) -> None:
    await start(world, sasl_jaas_config=f'{MODULE} user_eve="hunter1";', ssl_key_password="hunter2")
    connection = await connect(world, "alice")
    asked = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
    message = {"resources": [asked], "include_synonyms": True, "include_documentation": False}
    answer = await connection.request(ApiKey.DESCRIBE_CONFIGS, message)
    entries = {each.name: each for each in answer.results[0].configs}
    assert entries["ssl.key.password"].is_sensitive
    assert "hunter" not in str(answer)


def test_rules_give_a_certificate_its_principal_or_refuse_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed)
    config = BrokerConfig.parse({"ssl.principal.mapping.rules": "RULE:CN=(.*),OU=dev,.*/$1/U"})
    settings = listener_settings(config, "PLAINTEXT")
    security = ListenerSecurity(settings, world.simulation.runtime("broker"), lambda mechanism, user: None)
    issue = trustme.CA().issue_cert
    of_dev, other = (issue("localhost", common_name="ann", organization_unit_name=unit) for unit in ("dev", "ops"))
    of_dev, other = (ssl.PEM_cert_to_DER_cert(each.cert_chain_pems[0].bytes().decode()) for each in (of_dev, other))
    assert str(security.principal_of(of_dev)) == "User:ANN"
    assert security.principal_of(b"") == ANONYMOUS
    with pytest.raises(AuthenticationError, match="no readable name"):
        security.principal_of(of_dev[:20])
    with pytest.raises(AuthenticationError, match=r"no rule of ssl\.principal\.mapping\.rules matches 'CN=ann,OU=ops"):
        security.principal_of(other)
    principal_of = security.principal_of

    async def scene(world: World) -> None:
        await world.start()
        monkeypatch.setattr(ListenerSecurity, "principal_of", lambda *_: principal_of(other))
        with suppress(ConnectionResetError):  # the reset comes before or after the client's own side is open
            assert await (await world.client()).receive() is None
        counters = world.broker.server.counters["PLAINTEXT"]
        assert (counters.rejected, counters.admitted, len(world.broker.server.sessions)) == (1, 0, 0)

    world.run(scene)
