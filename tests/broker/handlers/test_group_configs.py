"""The configuration of single groups: GROUP resources of the configuration APIs (M7, KIP-848)."""

import asyncio
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource
from odradek.config.describe import describe_group
from odradek.config.group import GroupConfig, group_config
from odradek.config.load import load
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.model import ConfigurationError, ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World
from tests.world.scenes import played

GROUP = 32
KEYS = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}


async def configure(client: WireClient, group: str, keys: dict[str, str]) -> None:
    configs = [{"name": name, "value": value, "config_operation": 0} for name, value in keys.items()]
    resources = [{"resource_type": GROUP, "resource_name": group, "configs": configs}]
    message = {"resources": resources, "validate_only": False}
    (result,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, message, 1)).responses
    assert result.error_code == ErrorCode.none, result.error_message


async def joined(client: WireClient, group: str, member_id: str = "m") -> Any:
    message = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout": 1000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "topic_partitions": [],
    }
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0}, 2)
    while True:
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, 1)
        if answer.error_code not in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress):
            return answer


async def members(client: WireClient, group: str) -> int:
    message = {"group_ids": [group], "include_authorized_operations": False}
    (shown,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 1)).groups
    return len(shown.members)


@pytest.mark.parametrize("group", ["g", "a/b", ".", "..", "ä ö"])
@played
async def test_a_group_has_its_own_heartbeats_at_once_and_after_a_restart(world: World, group: str) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    assert (await joined(client, group)).heartbeat_interval.total_seconds() == 5
    await configure(client, group, KEYS)
    assert (await joined(client, group)).heartbeat_interval.total_seconds() == 7
    assert (await joined(client, "other")).heartbeat_interval.total_seconds() == 5
    await broker.stop()
    broker, client = await world.start(), await world.client()
    assert broker.image.group_configs == {group: KEYS}
    assert (await joined(client, group)).heartbeat_interval.total_seconds() == 7


@played
async def test_a_member_is_silent_for_as_long_as_its_group_says(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await configure(client, "g", {"consumer.session.timeout.ms": "60000"})
    for group in ("g", "other"):
        await joined(client, group)
    await asyncio.sleep(50)
    assert [await members(client, group) for group in ("g", "other")] == [1, 0]


@played
async def test_members_share_an_assignment_within_the_interval_of_their_group(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=2_000)
    await configure(client, "g", {"consumer.assignment.interval.ms": "0"})
    waits = []
    for group in ("g", "other"):
        await joined(client, group, "first")
        await joined(client, group, "second")
        begin = asyncio.get_running_loop().time()
        await joined(client, group, "third")
        waits.append(asyncio.get_running_loop().time() - begin)
    assert waits[0] < 0.01 < waits[1], "2,000 partitions: 20 ms"


def test_values_that_a_tool_wrote_and_that_are_invalid_are_ignored_with_an_error(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        broker, client = await world.start(), await world.client()
        await client.create_topic("t")
        await configure(client, "g", KEYS)
        node = ConfigNode(config={"consumer.heartbeat.interval.ms": "soon"}).encode()
        await broker.store.set(paths.group_config("g"), node)
        while broker.image.group_configs["g"] == KEYS:
            await asyncio.sleep(0.1)
        assert (await joined(client, "g")).heartbeat_interval.total_seconds() == 5

    play(scene)
    assert "Ignoring the configuration of group g: Invalid value soon for configuration consumer" in caplog.text


def test_a_group_inherits_from_the_broker() -> None:
    assert group_config(BrokerConfig(), {}) == GroupConfig()
    broker = load(None, {"group.consumer.session.timeout.ms": "46000"})
    assert group_config(broker, {}).consumer_session_timeout_ms == 46_000
    entries = {each.name: each for each in describe_group(broker, {"consumer.heartbeat.interval.ms": "6000"})}
    assert [(each.value, each.source) for each in entries["consumer.session.timeout.ms"].synonyms] == [
        ("46000", ConfigSource.STATIC_BROKER_CONFIG),
        ("45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entries["consumer.heartbeat.interval.ms"].source is ConfigSource.GROUP_CONFIG


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"group.consumer.session.timeout.ms": "6000"}, "between group.consumer.min.session.timeout.ms=45000"),
        (
            {"group.consumer.heartbeat.interval.ms": "20000"},
            "group.consumer.max.heartbeat.interval.ms=15000, not 20000",
        ),
        ({"group.consumer.max.session.timeout.ms": "40000"}, "group.consumer.session.timeout.ms is between"),
        ({"group.consumer.assignment.interval.ms": "15001"}, "group.consumer.max.assignment.interval.ms=15000"),
        (
            {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "45000"},
            "or every member expires",
        ),
        (
            {"group.consumer.migration.policy": "sideways"},
            "one of: disabled, upgrade, downgrade, bidirectional",
        ),
    ],
)
def test_a_broker_whose_limits_contradict_each_other_does_not_start(keys: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        load(None, keys)
