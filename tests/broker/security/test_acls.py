"""A cluster with an authorizer: ACLs are changed, seen by every broker, and refuse on every path (X2)."""

import asyncio
import logging
from typing import Any, Final

import pytest

from odradek.broker.apis import APIS
from odradek.broker.security.authorization import create_authorizer
from odradek.clients import Admin
from odradek.clients.admin.acls import RefusedAclsError
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.store import ANY_VERSION
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.protocol.api import BETWEEN_BROKERS, ApiKey
from odradek.security import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.quotas import QuotaEntity
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Scenario, World
from tests.broker.security.test_admission import AUTHENTICATION, FAILED, WITHOUT_AN_ERROR, ask, codes, message
from tests.broker.security.test_authentication import KEYS, MODULE
from tests.broker.security.test_authentication import connect as connect_to_first
from tests.world.scenes import in_world, played_by

AUTHORIZER: Final = {
    **KEYS,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker; User:CN=root,O=acme",
}
TOPIC: Final = "t"


def binding(
    user: str,
    operation: AclOperation,
    name: str = TOPIC,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
    permission_type: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    entry = AclEntry(principal=f"User:{user}", operation=operation, permission_type=permission_type)
    return AclBinding(pattern=ResourcePattern(kind, name, pattern_type), entry=entry)


def admin(world: World, user: str = "broker", password: str = "b", broker: int = 0) -> Admin:
    return Admin(
        f"{world.hosts[broker]}:9092",
        runtime=world.simulation.runtime("admin"),
        timeout_ms=2000,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{MODULE} username="{user}" password="{password}";',
    )


async def add(world: World, *bindings: AclBinding) -> None:
    async with admin(world) as root:
        await root.create_acls(bindings)


def play(seed: int, scene: Scenario, *, brokers: int = 1, **more: str) -> None:
    async def main(world: World) -> None:
        for number, host in enumerate(world.hosts):
            await world.start(number, listeners=f"SASL://{host}:9092", **more)
        await scene(world)

    World(seed, AUTHORIZER, brokers=brokers).run(main)


async def topics(world: World, user: str, password: str) -> list[str]:
    async with admin(world, user, password) as client:
        return sorted(each.name for each in await client.list_topics())


@played_by(play)
async def test_acls_are_created_described_and_deleted(world: World) -> None:
    read, prefixed = binding("alice", AclOperation.READ), binding("bob", AclOperation.ALL, "p-", ResourceType.GROUP)
    prefixed = AclBinding(pattern=prefixed.pattern._replace(pattern_type=PatternType.PREFIXED), entry=prefixed.entry)
    async with admin(world) as root:
        assert await root.describe_acls() == []
        for _ in range(2):
            await root.create_acls([read, prefixed])
        assert await root.describe_acls() == [read, prefixed]
        assert await root.describe_acls(AclFilter(principal="User:bob")) == [prefixed]
        matching = AclFilter(resource_type=ResourceType.GROUP, name="p-1", pattern_type=PatternType.MATCH)
        assert await root.describe_acls(matching) == [prefixed]
        assert await root.delete_acls([matching, AclFilter(name="other")]) == [prefixed]
        assert await root.delete_acls([AclFilter(), AclFilter()]) == [read]
        assert await root.describe_acls() == []
    assert await world.store(0).children("/kafka-acl/Topic") == []


def test_a_start_names_acls_for_an_old_spelling_of_a_certificate(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    deny = binding("title=Dr", AclOperation.READ, permission_type=AclPermissionType.DENY)

    async def scene(world: World) -> None:
        await add(world, deny, binding("alice", AclOperation.READ))
        assert "ACLs are for" not in caplog.text
        await world.stop()
        await world.start(listeners=f"SASL://{world.hosts[0]}:9092", super_users=r"User:CN=a\=b; User:CN=a=b")

    play(seed, scene)
    super_users, acls = (each for each in caplog.messages if "as earlier releases wrote" in each)
    assert "ACLs are for User:title=Dr" in acls
    assert "`odradek acls list --principal User:title=Dr`" in acls
    assert "User:2.5.4.12=#0c024472" in acls
    assert super_users.startswith("super.users has User:CN=a=b, ")


@played_by(play)
async def test_an_invalid_acl_is_refused_and_the_others_are_created(world: World) -> None:
    good = binding("alice", AclOperation.READ)
    bad = [
        AclBinding(pattern=good.pattern._replace(name="a/b"), entry=good.entry),
        AclBinding(pattern=good.pattern, entry=AclEntry(principal="alice", operation=AclOperation.READ)),
        binding("alice", AclOperation.ANY),
        binding("alice", AclOperation.READ, pattern_type=PatternType.MATCH),
    ]
    async with admin(world) as root:
        with pytest.raises(RefusedAclsError) as refused:
            await root.create_acls([good, *bad])
        assert {each: error.code for each, error in refused.value.errors.items()} == dict.fromkeys(
            bad, ErrorCode.invalid_request
        )
        assert await root.describe_acls() == [good]
        with pytest.raises(KafkaError, match="the filter has an unknown part"):
            await root.describe_acls(AclFilter(operation=AclOperation.UNKNOWN))


@played_by(play)
async def test_only_principals_that_may_alter_the_cluster_change_acls(world: World) -> None:
    async with admin(world, "alice", "secret") as alice:
        for call in (
            alice.create_acls([binding("alice", AclOperation.READ)]),
            alice.describe_acls(),
            alice.delete_acls([AclFilter()]),
        ):
            with pytest.raises(KafkaError) as refused:
                await call
            assert refused.value.code == ErrorCode.cluster_authorization_failed
        await add(world, binding("alice", AclOperation.ALTER, "kafka-cluster", ResourceType.CLUSTER))
        await alice.create_acls([binding("alice", AclOperation.READ)])
        assert len(await alice.describe_acls()) == 2, "ALTER implies DESCRIBE"


@in_world(started=False)
async def test_a_broker_without_an_authorizer_has_no_acls(world: World) -> None:
    await world.start()
    async with world.admin() as client:
        for call in (
            client.create_acls([binding("alice", AclOperation.READ)]),
            client.describe_acls(),
            client.delete_acls([AclFilter()]),
        ):
            with pytest.raises(KafkaError, match="No Authorizer is configured") as refused:
                await call
            assert refused.value.code == ErrorCode.security_disabled


@played_by(play, brokers=3)
async def test_changes_are_seen_by_every_broker_within_a_second_and_after_a_failover(world: World) -> None:
    async def seen() -> list[int]:
        await asyncio.sleep(1)
        return [sum(map(len, (broker.image.acls or {}).values())) for broker in world.running.values()]

    await add(world, binding("alice", AclOperation.READ))
    assert await seen() == [1, 1, 1]
    controller = world.broker.image.controller_id
    await world.kill(controller)
    survivor = min(world.running)
    assert await seen() == [1, 1]
    async with admin(world, broker=survivor) as root:
        await root.create_acls([binding("bob", AclOperation.READ, "other")])
    assert await seen() == [2, 2]
    await world.start(controller, listeners=f"SASL://{world.hosts[controller]}:9092")
    assert await seen() == [2, 2, 2]
    await world.store(survivor).delete(paths.acl(binding("bob", AclOperation.READ, "other").pattern), ANY_VERSION)
    await world.store(survivor).create(f"{paths.ACL_CHANGES}/acl_changes_", b"Topic:other", sequence=True)
    assert await seen() == [1, 1, 1], "a tool of Kafka's changed the tree"


@played_by(play)
async def test_a_producer_is_refused_as_soon_as_its_permission_is_revoked(world: World) -> None:
    await world.create_topic(TOPIC)
    write = binding("alice", AclOperation.WRITE)
    await add(world, write)
    client = await WireClient.connect(world.simulation.runtime("client").network, "broker", 9092)
    await client.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, 1)
    await client.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0secret"}, 2)
    for _ in range(3):
        assert (await client.produce(TOPIC, world.batch(b"a"))).error_code == 0
    assert any(each.fast_path is not None for each in world.broker.server.sessions)
    async with admin(world) as root:
        await root.delete_acls([AclFilter(principal="User:alice")])
    assert (await client.produce(TOPIC, world.batch(b"b"))).error_code == ErrorCode.topic_authorization_failed
    await add(world, write)
    assert (await client.produce(TOPIC, world.batch(b"c"))).base_offset == 3


@played_by(play)
async def test_each_principal_has_its_own_metadata(world: World) -> None:
    for name in ("t-1", "t-2", "u"):
        await world.create_topic(name)
    await add(
        world,
        binding("alice", AclOperation.DESCRIBE, "t-", pattern_type=PatternType.PREFIXED),
        binding("bob", AclOperation.READ, "u"),
    )
    for _ in range(2):
        assert await topics(world, "alice", "secret") == ["t-1", "t-2"]
        assert await topics(world, "bob", "x") == ["u"]
        assert await topics(world, "broker", "b") == ["t-1", "t-2", "u"]
    await add(world, binding("*", AclOperation.ALL, "t-2", permission_type=AclPermissionType.DENY))
    assert await topics(world, "alice", "secret") == ["t-1"]


@pytest.mark.parametrize("api", sorted(APIS.keys() - AUTHENTICATION - BETWEEN_BROKERS), ids=lambda api: api.name)
@played_by(play, brokers=2)
async def test_a_broker_forwards_nothing_of_a_principal_that_may_nothing(world: World, *, api: ApiKey) -> None:
    await world.create_topic(TOPIC, 1, 1)
    other = next(number for number in world.running if number != world.broker.image.controller_id)
    client = await WireClient.connect(world.simulation.runtime("client").network, world.hosts[other], 9092)
    await client.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, 1)
    await client.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0alice\0secret"}, 2)
    topic_id = world.broker.image.topics[TOPIC].topic_id
    before = world.broker.image
    answer = await ask(client, api, APIS[api].served[-1], message(api, topic_id))
    found = set(codes(answer))
    declared = APIS[api]
    assert found <= {FAILED[each.resource_type] for each in (*declared.request, *declared.items)}
    assert found or api in WITHOUT_AN_ERROR
    await asyncio.sleep(1)
    assert world.broker.image.topics == before.topics


@played_by(play)
async def test_acls_decide_while_the_session_with_the_tree_is_renewed_and_changes_are_seen_afterwards(
    world: World,
) -> None:
    await world.create_topic(TOPIC)
    await add(world, binding("alice", AclOperation.DESCRIBE))
    (session, store) = world.store(0).session_id, world.store(0)
    world.tree.expire(session)
    assert await topics(world, "alice", "secret") == [TOPIC]
    assert await topics(world, "bob", "x") == []
    await store.delete(paths.acl(binding("alice", AclOperation.DESCRIBE).pattern))
    await store.create(f"{paths.ACL_CHANGES}/acl_changes_", b"TOPIC:t", sequence=True)
    await asyncio.sleep(5)
    assert await topics(world, "alice", "secret") == []


@played_by(play, allow_everyone_if_no_acl_found="true")
async def test_everyone_may_use_resources_without_acls_if_the_key_allows_it(world: World) -> None:
    for name in (TOPIC, "private"):
        await world.create_topic(name)
    await add(world, binding("bob", AclOperation.READ, "private"))
    assert await topics(world, "alice", "secret") == [TOPIC]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "odradek.authorizer"]


def test_refusals_and_changes_are_logged_in_kafkas_words(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await world.create_topic(TOPIC)
        await add(world, binding("alice", AclOperation.READ))
        async with admin(world) as root:
            await root.delete_acls([AclFilter()])
            await root.alter_client_quotas(
                QuotaEntity(user="alice"), {"producer_byte_rate": 5, "request_percentage": None}
            )
        quotas = "set producer_byte_rate=5, removed request_percentage"
        changed = "Principal = User:broker from host = broker has changed "
        assert lines(caplog) == [
            f"{changed}ACLs: added Allow User:alice Read from * on Topic:LITERAL:t by request = CreateAcls",
            f"{changed}ACLs: removed Allow User:alice Read from * on Topic:LITERAL:t by request = DeleteAcls",
            f"{changed}quotas of user 'alice': {quotas} by request = AlterClientQuotas",
        ]
        caplog.clear()
        assert await topics(world, "alice", "secret") == []
        assert lines(caplog) == [], "a list leaves out what the principal may not see"
        connection = await connect_to_first(world, "alice")
        request: dict[str, Any] = {"groups": ["g"], "include_authorized_operations": False}
        for _ in range(20):
            await connection.request(ApiKey.DESCRIBE_GROUPS, request)
        expected = (
            "Principal = User:alice is Denied operation = Describe from host = broker on resource = Group:LITERAL:g "
            "for request = DescribeGroups"
        )
        assert lines(caplog) == [expected] * 10
        await asyncio.sleep(61)
        assert lines(caplog)[10:] == [f"10 more lines like this one in the last 60 s: {expected}"]

    caplog.set_level(logging.INFO, "odradek.authorizer")
    play(seed, scene)


def test_every_change_is_logged_whatever_others_of_the_principal_were(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        async with admin(world) as root:
            for number in range(150):
                await root.alter_client_quotas(QuotaEntity(user=f"user-{number}"), {"producer_byte_rate": 5})
        assert [each.split("'")[1] for each in lines(caplog)] == [f"user-{number}" for number in range(150)]

    caplog.set_level(logging.INFO, "odradek.authorizer")
    play(seed, scene)


def test_a_broker_that_is_no_super_user_is_named_in_the_log(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await world.start(0)
        starting = asyncio.create_task(world.start(1))
        await asyncio.sleep(30)
        assert not starting.done()
        starting.cancel()
        found = lines(caplog)
        assert found[0].startswith(
            "Brokers connect to each other as User:ANONYMOUS through the listener PLAINTEXT, and super.users does not"
        )
        assert any(
            line.startswith("Principal = User:ANONYMOUS is Denied operation = ClusterAction from host = ")
            and line.endswith("; if it is a broker, add its principal to super.users")
            for line in found
        )

    only = {"authorizer.class.name": AUTHORIZER["authorizer.class.name"]}
    World(seed, only, brokers=2).run(scene)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"super.users": "alice"}, "super.users: 'alice' is not a principal: TYPE:NAME, for instance User:alice"),
        ({"super.users": "User:a;b"}, "super.users: 'b' is not a principal"),
        ({"authorizer.class.name": "com.acme.Authorizer"}, "authorizer.class.name.*StandardAuthorizer"),
    ],
)
def test_a_broker_with_invalid_keys_does_not_start(seed: int, keys: dict[str, str], problem: str) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            await world.start(0)

    World(seed, keys).run(scene)


def test_only_spaces_around_the_name_of_a_super_user_are_ignored() -> None:
    """Another blank makes the name of another user."""
    keys = {"authorizer.class.name": AUTHORIZER["authorizer.class.name"], "super.users": " User:a ;User:b\u00a0"}
    authorizer = create_authorizer(BrokerConfig.parse(keys))
    assert authorizer is not None
    assert {each.name for each in authorizer.super_users} >= {"a", "b\u00a0"}
    assert "b" not in {each.name for each in authorizer.super_users}


@played_by(play, authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
async def test_both_of_kafkas_authorizers_are_this_one(world: World) -> None:
    await world.create_topic(TOPIC)
    await add(world, binding("alice", AclOperation.DESCRIBE))
    assert await topics(world, "alice", "secret") == [TOPIC]
    assert await topics(world, "bob", "x") == []
