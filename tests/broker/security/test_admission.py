"""Every request passes admission: no API, no version and no shortcut gets round the authorizer, quotas and checks."""

import asyncio
import pkgutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest

from conformance.interop.test_versions import GROUP, TOPIC, requests
from odradek.broker import handlers
from odradek.broker.apis import APIS
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup
from odradek.broker.security.admission import Admission
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.message_codec import encode_request
from odradek.security import (
    AclOperation,
    Action,
    AuthorizableRequestContext,
    AuthorizationResult,
    Principal,
    ResourcePattern,
    ResourceType,
)
from odradek.simulation.wire_client import FETCH_VERSION, WireClient, fetch_message
from odradek.simulation.world import Play, World
from tests.broker.handlers.widest_requests import wide_requests
from tests.world.scenes import played

FAILED = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
METADATA = {
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
AUTHENTICATION = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
WITHOUT_AN_ERROR = {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""APIs that answer every principal, with less or the same."""


class Rules:
    """An authorizer that allows everything but what `deny` names; None stands for any."""

    def __init__(self) -> None:
        self.version = 1
        self.asked: list[Action] = []
        self._denied: list[tuple[Principal | None, AclOperation | None, ResourceType | None, str | None]] = []

    def deny(
        self,
        operation: AclOperation | None = None,
        resource_type: ResourceType | None = None,
        name: str | None = None,
        *,
        principal: Principal | None = None,
    ) -> None:
        self.version += 1
        self._denied.append((principal, operation, resource_type, name))

    def allow_all(self) -> None:
        self.version += 1
        self._denied.clear()

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> Sequence[AuthorizationResult]:
        self.asked += actions
        return [self._decide(context, *action) for action in actions]

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        return self._decide(context, operation, ResourcePattern(resource_type, ""))

    def _decide(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource: ResourcePattern
    ) -> AuthorizationResult:
        wanted = (context.principal, operation, resource.resource_type, resource.name)
        is_denied = any(
            all(rule is None or rule == part for rule, part in zip(denied, wanted, strict=True))
            for denied in self._denied
        )
        return AuthorizationResult.DENIED if is_denied else AuthorizationResult.ALLOWED


class Setting:
    """A broker with rules, two topics and a client that may do everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rules = Rules()
        self.client: WireClient
        self.broker: Any
        self.topic_id: UUID

    async def begin(self, **config: Any) -> "Setting":
        self.broker = await self.world.start(admission=Admission(self.rules), **config)
        self.client = await self.world.client()
        self.topic_id = (await self.client.create_topic(TOPIC)).topic_id
        await self.client.create_topic("public")
        for topic in (TOPIC, "public"):
            assert (await self.client.produce(topic, self.world.batch(b"a"))).error_code == 0
        return self

    async def commit(self) -> None:
        found = await self.client.ask(ApiKey.FIND_COORDINATOR, {"key": GROUP, "key_type": 0}, 3)
        assert found.error_code == 0
        await asyncio.sleep(1)
        answer = await self.client.ask(ApiKey.OFFSET_COMMIT, requests(self.topic_id)[ApiKey.OFFSET_COMMIT], 8)
        assert answer.topics[0].partitions[0].error_code == 0

    def state(self) -> Any:
        """Return the state that requests could change."""
        broker = self.broker
        machine = broker.groups.machine(GROUP)
        assert machine is not None
        return (
            {name: (topic.topic_id, len(topic.partitions)) for name, topic in broker.image.topics.items()},
            {key: (log.log_start_offset, log.log_end_offset) for key, log in broker.logs.logs.items()},
            {each.group_id: (len(each.members), each.state) for each in machine.groups.of_type(ClassicGroup)},
            dict(machine.offsets.of(GROUP)),
            dict(broker.image.broker_configs),
        )

    def be(self, principal: Principal) -> None:
        """Give the newest connection a principal."""
        tuple(self.broker.server._connections.values())[-1].principal = principal


def codes(value: Any) -> Iterator[ErrorCode]:
    """Every error code in an answer."""
    named = value._asdict().items() if hasattr(value, "_asdict") else ()
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in fields(value))
    elif not named and isinstance(value, list | tuple):
        named = (("", each) for each in value)
    for name, each in named:
        if name.endswith("error_code") and each:
            yield ErrorCode(each)
        elif not isinstance(each, str | bytes):
            yield from codes(each)


def message(api: ApiKey, topic_id: UUID) -> dict[str, Any]:
    """A request that would show or change something."""
    found = requests(topic_id)[api]
    if api is ApiKey.DELETE_TOPICS:
        return {**found, "topics": [{"name": None, "topic_id": topic_id}], "topic_names": [TOPIC]}
    if api is ApiKey.PRODUCE:
        records = bytes(encode_batch([(1_700_000_000_000, None, b"b", ())]))
        (topic,) = found["topic_data"]
        return {**found, "topic_data": [{**topic, "partition_data": [{"index": 0, "records": records}]}]}
    if api is ApiKey.METADATA:
        return {**found, "topics": [{"name": TOPIC, "topic_id": None}]}
    if api is ApiKey.CREATE_TOPICS:
        return {**found, "topics": [{**found["topics"][0], "name": "new"}], "validate_only": False}
    if api is ApiKey.DELETE_RECORDS:
        return {**found, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}]}
    if api is ApiKey.DELETE_GROUPS:
        return {**found, "groups_names": [GROUP]}
    if api is ApiKey.OFFSET_DELETE:
        return {**found, "group_id": GROUP}
    if api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS):
        return {**found, "validate_only": False}
    return {**found, "include_cluster_authorized_operations": True}


async def ask(client: WireClient, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
    client.send(api, request, version)
    if api == ApiKey.PRODUCE:
        return await client.produce_response()
    return await (client.fetch_response() if api == ApiKey.FETCH else client.answer())


# ---- the table ------------------------------------------------------------------------------------------------------


def test_every_handler_has_a_row_and_every_row_permissions() -> None:
    shared = {"config_resources", "delayed_produce", "produce_rejections", "produce_fast_path", "switched_off"}
    assert {each.name for each in pkgutil.iter_modules(handlers.__path__)} - shared == {
        api.module for api in APIS.values()
    }
    assert {api for api, declared in APIS.items() if not (declared.request or declared.items)} == {
        ApiKey.API_VERSIONS,
        *AUTHENTICATION,
    }


@pytest.mark.parametrize("api", sorted(APIS.keys() - AUTHENTICATION), ids=lambda api: api.name)
@played
async def test_a_principal_that_may_nothing_is_refused_by_every_api_in_every_version(world: World, api: ApiKey) -> None:
    setting = await Setting(world).begin()
    await setting.commit()
    before = setting.state()
    setting.rules.deny()
    setting.rules.asked.clear()
    declared = APIS[api]
    for version in APIS[api].served:
        answer = await ask(setting.client, api, version, message(api, setting.topic_id))
        assert answer is not None, f"version {version} closed the connection"
        found = set(codes(answer))
        assert found <= {FAILED[each.resource_type] for each in (*declared.request, *declared.items)}, version
        if api not in WITHOUT_AN_ERROR and (api, version) not in {
            (ApiKey.DESCRIBE_LOG_DIRS, 1),
            (ApiKey.DESCRIBE_LOG_DIRS, 2),
        }:
            assert found, f"version {version}: {answer}"
        if api not in {ApiKey.API_VERSIONS, ApiKey.LIST_TRANSACTIONS}:
            assert setting.rules.asked
        await asyncio.sleep(1)
        assert setting.state() == before
    asked = {(action.operation, action.resource_pattern.resource_type) for action in setting.rules.asked}
    assert asked <= {tuple(each) for each in (*declared.request, *declared.items)}


@pytest.mark.parametrize(
    "api", sorted(api for api, declared in APIS.items() if declared.request), ids=lambda api: api.name
)
@played
async def test_one_of_the_permissions_on_a_request_suffices(world: World, api: ApiKey) -> None:
    declared = APIS[api]
    setting = await Setting(world).begin()
    for permission in declared.request:
        setting.rules.allow_all()
        for other in AclOperation:
            if other is not permission.operation:
                setting.rules.deny(other, permission.resource_type)
        version = APIS[api].served[-1]
        answer = await ask(setting.client, api, version, message(api, setting.topic_id))
        assert FAILED[permission.resource_type] not in set(codes(answer))


# ---- parts of a request ---------------------------------------------------------------------------------------------


@played
async def test_produce_appends_to_the_topics_that_the_principal_may_write(world: World) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
    one, other = (
        {"name": name, "partition_data": [{"index": 0, "records": bytes(world.batch(b"b"))}]}
        for name in (TOPIC, "public")
    )
    request = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": [one, other]}
    answer = await ask(setting.client, ApiKey.PRODUCE, 9, request)
    assert [each.partitions[0].error_code for each in answer.topics] == [ErrorCode.topic_authorization_failed, 0]
    assert [each.partitions[0].log_start_offset for each in answer.topics] == [-1, 0]
    for acks in (2, 100):
        answer = await ask(setting.client, ApiKey.PRODUCE, 9, request | {"acks": acks})
        errors = [ErrorCode.topic_authorization_failed, ErrorCode.invalid_required_acks]
        assert [each.partitions[0].error_code for each in answer.topics] == errors
        assert [each.partitions[0].log_start_offset for each in answer.topics] == [-1, -1]
    setting.rules.deny(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    batch = world.batch(b"c", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused = await setting.client.produce("public", batch, transactional_id="tx")
    assert refused.error_code == ErrorCode.transactional_id_authorization_failed


@played
async def test_an_unknown_topic_id_stays_unknown_to_a_principal_that_may_nothing(world: World) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny()
    unknown = UUID(int=77)
    produced = await setting.client.produce(unknown, world.batch(b"b"), version=13)
    assert produced.error_code == ErrorCode.unknown_topic_id
    assert (await setting.client.fetch(unknown, 0, version=13)).error_code == ErrorCode.unknown_topic_id
    request = {"topics": [{"name": None, "topic_id": unknown}], "timeout": 1000}
    deleted = await ask(setting.client, ApiKey.DELETE_TOPICS, 6, request)
    assert deleted.responses[0].error_code == ErrorCode.unknown_topic_id


@played
async def test_a_fetch_session_does_not_outlive_the_permission(world: World) -> None:
    setting = await Setting(world).begin()
    client = setting.client
    client.send_fetch([(TOPIC, 0, 0), ("public", 0, 0)], session=(0, 0))
    opened = await client.fetch_response()
    assert [each.partitions[0].error_code for each in opened.topics] == [0, 0]
    setting.rules.deny(AclOperation.READ, ResourceType.TOPIC, TOPIC)
    client.send_fetch([], session=(opened.session_id, 1))
    answer = await client.fetch_response()
    by_topic = {each.name: each.partitions[0] for each in answer.topics}
    assert by_topic[TOPIC].error_code == ErrorCode.topic_authorization_failed
    assert not by_topic[TOPIC].records
    assert by_topic["public"].error_code == 0


@pytest.mark.parametrize("version", [12, 16])
@played
async def test_a_client_that_may_read_a_topic_cannot_fetch_as_a_follower(world: World, version: int) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.CLUSTER_ACTION)
    request = requests(setting.topic_id)[ApiKey.FETCH]
    request |= {"replica_id": 0, "replica_state": {"replica_id": 0, "replica_epoch": -1}}
    answer = await ask(setting.client, ApiKey.FETCH, version, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed
    assert not answer.topics[0].partitions[0].records


@played
async def test_metadata_leaves_out_topics_that_may_not_be_described_and_refuses_them_by_name_and_id(
    world: World,
) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
    base = {**METADATA, "include_topic_authorized_operations": True}
    everything = await ask(setting.client, ApiKey.METADATA, 12, {**base, "topics": None})
    (public,) = everything.topics
    assert public.name == "public"
    assert public.topic_authorized_operations == 0b1101_1111_1000
    named = [{"name": name, "topic_id": None} for name in (TOPIC, "public")]
    by_name = await ask(setting.client, ApiKey.METADATA, 12, {**base, "topics": named})
    refused = next(each for each in by_name.topics if each.name == TOPIC)
    assert refused.error_code == ErrorCode.topic_authorization_failed
    assert (refused.topic_id, refused.partitions) == (None, ())
    wanted = [{"name": None, "topic_id": setting.topic_id}]
    by_id = await ask(setting.client, ApiKey.METADATA, 12, {**base, "topics": wanted})
    assert by_id.topics[0].error_code == ErrorCode.topic_authorization_failed
    assert (by_id.topics[0].name, by_id.topics[0].topic_id) == (None, setting.topic_id)


@pytest.mark.parametrize("is_described", [True, False])
def test_metadata_creates_no_topic_without_the_permission(play: Play, *, is_described: bool) -> None:
    async def scene(world: World) -> None:
        setting = await Setting(world).begin()
        if is_described:
            setting.rules.deny(AclOperation.CREATE)
        else:
            setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC)
        request = {**METADATA, "topics": [{"name": "new", "topic_id": None}]}
        answer = await ask(setting.client, ApiKey.METADATA, 9, request)
        assert answer.topics[0].error_code == ErrorCode.topic_authorization_failed
        await asyncio.sleep(10)
        assert "new" not in setting.broker.image.topics
        setting.rules.allow_all()
        setting.rules.deny(AclOperation.CREATE, ResourceType.CLUSTER)
        answer = await ask(setting.client, ApiKey.METADATA, 9, request)
        assert answer.topics[0].error_code == 0

    play(scene)


@played
async def test_authorized_operations_are_those_of_the_principal(world: World) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.ALTER)
    topics = [{"name": TOPIC, "topic_id": None}]
    request = {**METADATA, "topics": topics, "include_topic_authorized_operations": True}
    answer = await ask(setting.client, ApiKey.METADATA, 12, request)
    assert answer.topics[0].topic_authorized_operations == 0b1101_0111_1000
    described = await ask(setting.client, ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True})
    assert described.cluster_authorized_operations == 0b1_1111_0010_0000
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    described = await ask(setting.client, ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True})
    assert described.cluster_authorized_operations == 0


@played
async def test_offsets_of_topics_that_may_not_be_described_are_left_out_or_refused(world: World) -> None:
    setting = await Setting(world).begin()
    await setting.commit()
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
    named = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    answer = await ask(setting.client, ApiKey.OFFSET_FETCH, 7, named)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed
    assert answer.topics[0].partitions[0].committed_offset == -1
    everything = await ask(setting.client, ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})
    assert everything.topics == ()
    setting.rules.allow_all()
    setting.rules.deny(AclOperation.READ, ResourceType.TOPIC, TOPIC)
    commit = requests(setting.topic_id)[ApiKey.OFFSET_COMMIT]
    committed = await ask(setting.client, ApiKey.OFFSET_COMMIT, 8, commit)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed


@played
async def test_topics_are_created_with_the_permission_on_the_topic_alone(world: World) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.CREATE, ResourceType.CLUSTER)
    setting.rules.deny(AclOperation.CREATE, ResourceType.TOPIC, "theirs")
    setting.rules.deny(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
    topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    request = {"topics": [{**topic, "name": name} for name in ("ours", "theirs")], "timeout": 1000}
    answer = await ask(setting.client, ApiKey.CREATE_TOPICS, 7, request)
    by_name = {each.name: each for each in answer.topics}
    assert by_name["theirs"].error_code == ErrorCode.topic_authorization_failed
    assert by_name["ours"].error_code == 0
    assert by_name["ours"].topic_config_error_code == ErrorCode.topic_authorization_failed
    assert (by_name["ours"].num_partitions, by_name["ours"].configs) == (-1, ())
    assert "theirs" not in setting.broker.image.topics


@played
async def test_an_idempotent_producer_needs_the_permission_to_write_any_topic(world: World) -> None:
    setting = await Setting(world).begin()
    request = requests(setting.topic_id)[ApiKey.INIT_PRODUCER_ID]
    setting.rules.deny(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    assert (await ask(setting.client, ApiKey.INIT_PRODUCER_ID, 4, request)).error_code == 0
    setting.rules.deny(AclOperation.WRITE, ResourceType.TOPIC)
    refused = await ask(setting.client, ApiKey.INIT_PRODUCER_ID, 4, request)
    assert refused.error_code == ErrorCode.cluster_authorization_failed


# ---- what skips a part of the way -----------------------------------------------------------------------------------


@played
async def test_the_fast_path_of_produce_is_authorized_anew_when_the_rules_change(world: World) -> None:
    setting = await Setting(world).begin()
    client = setting.client
    for _ in range(3):
        assert (await client.produce(TOPIC, world.batch(b"b"))).error_code == 0
    ((_, session),) = setting.broker.server._connections.items()
    assert session.fast_path is not None
    asked = len(setting.rules.asked)
    assert (await client.produce(TOPIC, world.batch(b"c"))).error_code == 0
    assert len(setting.rules.asked) == asked, "the fast path asks nothing while the version is the same"
    setting.rules.deny(AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
    for _ in range(2):
        refused = await client.produce(TOPIC, world.batch(b"d"))
        assert refused.error_code == ErrorCode.topic_authorization_failed
    setting.rules.allow_all()
    for offset in range(5, 8):
        assert (await client.produce(TOPIC, world.batch(b"e"))).base_offset == offset


@played
async def test_cached_metadata_is_of_one_principal_and_one_version_of_the_rules(world: World) -> None:
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC, principal=BOB)
    alice = await world.client()
    setting.be(ALICE)
    bob = await world.client()
    setting.be(BOB)

    async def topics(client: WireClient) -> set[str]:
        answer = await ask(client, ApiKey.METADATA, 9, {**METADATA, "topics": None})
        return {each.name for each in answer.topics}

    for _ in range(2):
        assert await topics(alice) == {TOPIC, "public"}
        assert await topics(bob) == {"public"}
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "public", principal=ALICE)
    assert await topics(alice) == {TOPIC}


@pytest.mark.parametrize(("api", "version"), [(ApiKey.UPDATE_METADATA, 9), (ApiKey.ADD_PARTITIONS_TO_TXN, 5)])
@played
async def test_a_request_between_brokers_is_refused_before_its_body_is_read(
    world: World, api: ApiKey, version: int
) -> None:
    """And whatever the body says: the answer to a right broker epoch is that to a wrong one."""
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.CLUSTER_ACTION)
    for epoch in (setting.broker.image.brokers[0].epoch, 12345):
        body = struct.pack(">iiq", 0, 1, epoch) + b"\xff" * 40
        setting.client.send(api, body, version)
        answer = await setting.client.answer()
        assert answer.error_code is ErrorCode.cluster_authorization_failed


@pytest.mark.parametrize("api", [ApiKey.CREATE_ACLS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS])
@played
async def test_a_refusal_that_repeats_entries_keeps_the_limit_of_entries(world: World, api: ApiKey) -> None:
    setting = await Setting(world).begin(queued_max_request_bytes=20_000_000, socket_request_max_bytes=10_000_000)
    setting.rules.deny(AclOperation.ALTER, ResourceType.CLUSTER)
    most = setting.broker.config.most_request_entries
    (_, message), *_ = wide_requests(api, last := APIS[api].served.stop - 1, most + 1)
    setting.client.send(api, encode_request(api, last, message), last)
    assert await setting.client.receive() is None


@pytest.mark.parametrize("replica", [-1, 7])
@played
async def test_a_fetch_without_rights_opens_no_session(world: World, replica: int) -> None:
    """It could evict another client's."""
    setting = await Setting(world).begin()
    setting.rules.deny(AclOperation.READ)
    setting.rules.deny(AclOperation.CLUSTER_ACTION)
    message = {**fetch_message([(TOPIC, 0, 0)], session=(0, 0)), "replica_id": replica}
    setting.client.send(ApiKey.FETCH, message, FETCH_VERSION)
    answer = await setting.client.fetch_response()
    assert answer.session_id == 0
    assert answer.topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed
    assert not len(setting.broker.fetch_sessions)
