"""No response tells a principal the name of a topic, group, user or transactional id that it may not describe."""

import asyncio
from typing import Any, Final
from uuid import UUID

from conformance.interop.test_versions import GROUP, TOPIC, requests
from odradek.broker.apis import APIS
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.security import AclOperation, ResourceType
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.broker.handlers.test_partition_admin import page
from tests.broker.security.quotas.test_client_quotas import alter as alter_quota
from tests.broker.security.test_admission import Setting, message
from tests.broker.security.test_user_credentials import alter as alter_user
from tests.broker.security.test_user_credentials import upsertion
from tests.broker.transactions.transactional_client import TransactionalClient
from tests.world.scenes import played

HIDDEN: Final = "hidden"
EVERYTHING: Final[dict[ApiKey, dict[str, Any]]] = {
    ApiKey.METADATA: {"topics": None},
    ApiKey.OFFSET_FETCH: {"topics": None, "groups": [{"group_id": GROUP, "member_epoch": -1, "topics": None}]},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 2000},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None},
    ApiKey.ELECT_LEADERS: {"election_type": 0, "topic_partitions": None},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": []},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]},
}
"""Fields that make a request ask for everything; requests of other APIs do so without, or cannot."""
SHOWN: Final = {
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_CONFIG_RESOURCES,
}
"""APIs whose responses have names that the request does not have."""


async def hide(setting: Setting) -> UUID:
    """Make something of each kind whose name is not to be seen, and return the topic's id."""
    client = setting.client
    await setting.commit()
    topic_id: UUID = (await client.create_topic(f"{HIDDEN}-topic")).topic_id
    commit = requests(topic_id)[ApiKey.OFFSET_COMMIT]
    for group, topic in ((GROUP, f"{HIDDEN}-topic"), (f"{HIDDEN}-group", TOPIC)):
        topics = [{**commit["topics"][0], "name": topic}]
        await client.ask(ApiKey.OFFSET_COMMIT, {**commit, "group_id": group, "topics": topics}, 8)
    resource = {"resource_type": 32, "resource_name": f"{HIDDEN}-group"}
    configs = [{"name": "consumer.session.timeout.ms", "value": "50000", "config_operation": 0}]
    resources = [{**resource, "configs": configs}]
    await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": False}, 1)
    await alter_quota(client, {"user": f"{HIDDEN}-quota"}, producer_byte_rate=1e9)
    await alter_user(client, upsertion(f"{HIDDEN}-user"))
    for transactional_id in (f"{HIDDEN}-id", "test"):
        producer = TransactionalClient(setting.world, transactional_id)
        await producer.init()
        await producer.add((f"{HIDDEN}-topic", 0))
    await asyncio.sleep(1)
    return topic_id


async def shows(client: WireClient, api: ApiKey, version: int, request: dict[str, Any]) -> bool:
    """Return whether a response has a hidden name anywhere."""
    client.send(api, request, version)
    response = await client.receive()
    assert response is not None, f"{api.name} {version} closed the connection"
    return HIDDEN.encode() in response


def wanted(api: ApiKey, version: int, topic_id: UUID) -> list[dict[str, Any]]:
    """Return requests by names that are not hidden, by the hidden topic's id, and for everything."""
    request = message(api, topic_id)
    everything = EVERYTHING.get(api, {})
    if (api, version) == (ApiKey.METADATA, 0):
        everything = {"topics": []}
    elif api is ApiKey.OFFSET_FETCH and version < 2:
        return [request]
    if api is ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        return [request, *({**request, "topics": [], "response_partition_limit": limit} for limit in (1, 2, 2000))]
    return [request, {**request, **everything}]


@played
async def test_no_response_names_what_the_principal_may_not_describe(world: World) -> None:
    setting = await Setting(world).begin()
    topic_id = await hide(setting)
    client, rules = setting.client, setting.rules
    for api in SHOWN:
        asked = [(version, each) for version in APIS[api].served for each in wanted(api, version, topic_id)]
        assert any([await shows(client, api, *each) for each in asked]), f"{api.name} shows no name"
    for may_others in (False, True):
        rules.allow_all()
        if may_others:
            rules.deny(resource_type=ResourceType.CLUSTER)
            for kind in ("topic", "group", "id"):
                rules.deny(name=f"{HIDDEN}-{kind}")
        else:
            rules.deny()
        for api in sorted(APIS, key=lambda api: (api not in SHOWN, api)):
            for version in APIS[api].served:
                for request in wanted(api, version, topic_id):
                    assert not await shows(client, api, version, request), (may_others, api.name, version)


@played
async def test_a_page_of_topics_ends_before_the_next_topic_that_the_principal_may_describe(world: World) -> None:
    setting = await Setting(world).begin()
    for name in ("a", "b", "c", "d"):
        await setting.client.create_topic(name, 2)
    for name in ("b", "d", "public", TOPIC):
        setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    assert await page(setting.client, limit=2) == ({"a": [0, 1]}, ("c", 0))
    assert await page(setting.client, limit=2, cursor=("b", 0)) == ({"c": [0, 1]}, None)
    failed = ErrorCode.topic_authorization_failed
    assert await page(setting.client, "a", "b", "c", limit=2) == ({"a": [0, 1]}, ("b", 0)), "the client has named it"
    assert await page(setting.client, "b", "d", limit=2) == ({"b": failed, "d": failed}, None)


@played
async def test_a_name_that_collides_with_a_hidden_topic_is_refused_without_naming_it(world: World) -> None:
    setting = await Setting(world).begin()
    await setting.client.create_topic("dotted.name")

    async def refusal() -> str:
        topic = {"name": "dotted_name", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        request = {"topics": [topic], "timeout_ms": 1000, "validate_only": False}
        (answer,) = (await setting.client.ask(ApiKey.CREATE_TOPICS, request, 7)).topics
        assert answer.error_code == ErrorCode.invalid_topic_exception
        return str(answer.error_message)

    assert "collides with existing topic: dotted.name" in await refusal()
    setting.rules.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "dotted.name")
    assert (await refusal()).endswith("collides with existing topic")
    assert "dotted.name" not in await refusal()
