"""M10: topics and brokers are configured while they run; who is told what, and what holds from then on."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers import list_config_resources
from odradek.broker.turns import TURN, at_once, one_turn
from odradek.config.definition import ConfigSource
from odradek.metadata.nodes import ConfigNode
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World, until
from tests.world.scenes import in_world, played

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOW_MS = 1_700_000_000_000
"""When the records of these tests say that they were made."""


def resource(kind: int, name: str, *keys: tuple[Any, ...]) -> dict[str, Any]:
    """Keys are (name, value) or (name, operation, value)."""
    configs = [{"name": key[0], "value": key[-1], "config_operation": key[1] if len(key) == 3 else SET} for key in keys]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def alter(
    client: WireClient, *resources: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[ErrorCode]:
    message = {"resources": resources, "validate_only": validate_only}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, message, version)
    asked = [(each["resource_type"], each["resource_name"]) for each in resources]
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == asked
    assert all((each.error_code == ErrorCode.none) == (each.error_message is None) for each in answer.responses)
    return [each.error_code for each in answer.responses]


async def described(client: WireClient, kind: int, name: str, version: int = 4) -> dict[str, Any]:
    message = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
        "include_synonyms": True,
    }
    (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, message, version)).results
    assert result.error_code == ErrorCode.none, result.error_message
    return {entry.name: entry for entry in result.configs}


@pytest.mark.parametrize("version", [0, 1])
@played
async def test_a_topic_s_keys_are_set_and_unset_one_by_one(world: World, version: int) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", config={"retention.ms": "5", "segment.ms": "6"})
    changes = resource(TOPIC, "t", ("retention.ms", "7"), ("segment.ms", DELETE, None), ("flush.ms", SET, "8"))
    assert await alter(client, changes, version=version) == [ErrorCode.none]
    assert broker.image.topics["t"].config == {"retention.ms": "7", "flush.ms": "8"}
    entries = await described(client, TOPIC, "t")
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == (
        "7",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert entries["segment.ms"].config_source == ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize("version", [0, 1, 2])
@played
async def test_altering_the_old_way_unsets_what_is_not_named(world: World, version: int) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", config={"retention.ms": "5"})
    for validate_only, config in ((True, {"retention.ms": "5"}), (False, {"segment.ms": "6"})):
        message = {"resources": [resource(TOPIC, "t", ("segment.ms", "6"))], "validate_only": validate_only}
        answer = await client.ask(ApiKey.ALTER_CONFIGS, message, version)
        assert [each.error_code for each in answer.responses] == [ErrorCode.none]
        assert broker.image.topics["t"].config == config


@played
async def test_a_broker_s_keys_are_replaced_the_old_way(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await alter(client, resource(BROKER, "0", ("log.roll.ms", "5"), ("message.max.bytes", "99")))
    message = {"resources": [resource(BROKER, "0", ("log.roll.ms", "6"))], "validate_only": False}
    answer = await client.ask(ApiKey.ALTER_CONFIGS, message, 2)
    assert [each.error_code for each in answer.responses] == [ErrorCode.none]
    assert broker.image.broker_configs == {0: {"log.roll.ms": "6"}}
    assert (broker.config.log_roll_ms, broker.config.message_max_bytes) == (6, 1_048_588)


@played
async def test_the_log_goes_by_the_new_values_at_once(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", partitions=2)
    log = broker.logs.get(TopicPartition("t", 1))
    assert (await client.produce("t", world.batch(b"x" * 200), partition=1)).error_code == ErrorCode.none
    keys = ("max.message.bytes", "100"), ("segment.bytes", "90"), ("message.timestamp.type", "LogAppendTime")
    assert await alter(client, resource(TOPIC, "t", *keys)) == [ErrorCode.none]
    response = await client.produce("t", world.batch(b"x" * 200), partition=1)
    assert response.error_code == ErrorCode.message_too_large
    response = await client.produce("t", world.batch(b"x"), partition=1)
    assert response.log_append_time > NOW_MS
    assert log.segments.bases == [0, 1]


@in_world(brokers=2, started=False)
async def test_an_append_needs_as_many_in_sync_replicas_as_the_new_value_says(world: World) -> None:
    await world.start()
    client = await world.client()
    await world.start(1)
    await world.kill(1)
    await world.create_topic("t", 1, 2)
    for where, back in (((TOPIC, "t"), DELETE), ((BROKER, "0"), DELETE), ((BROKER, ""), DELETE)):
        await alter(client, resource(*where, ("min.insync.replicas", "2")))
        assert (await client.produce("t", world.batch(b"a"))).error_code == ErrorCode.not_enough_replicas
        await alter(client, resource(*where, ("min.insync.replicas", back, None)))
        assert (await client.produce("t", world.batch(b"a"))).error_code == ErrorCode.none


@played
async def test_a_list_is_extended_and_shrunk(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    assert await alter(client, resource(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))) == [ErrorCode.none]
    assert broker.image.topics["t"].config == {"cleanup.policy": "delete,compact"}
    assert await alter(client, resource(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))) == [ErrorCode.none]
    assert broker.logs.get(TopicPartition("t", 0)).config.cleanup_policy == ("compact",)


@played
async def test_a_broker_s_keys_change_in_three_layers(world: World) -> None:
    broker, client = await world.start(log_retention_ms=3), await world.client()
    await client.create_topic("t")
    log = broker.logs.get(TopicPartition("t", 0))

    async def sources() -> list[tuple[str, int]]:
        entry = (await described(client, BROKER, "0"))["log.retention.ms"]
        assert not entry.read_only
        assert entry.value == entry.synonyms[0].value == str(log.config.retention_ms)
        return [(each.value, each.source) for each in entry.synonyms]

    static = ("3", ConfigSource.STATIC_BROKER_CONFIG)
    assert await sources() == [static]
    assert await alter(client, resource(BROKER, "", ("log.retention.ms", "2"))) == [ErrorCode.none]
    assert await sources() == [("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG), static]
    assert await alter(client, resource(BROKER, "0", ("log.retention.ms", "1"))) == [ErrorCode.none]
    assert (await sources())[0] == ("1", ConfigSource.DYNAMIC_BROKER_CONFIG)
    entry = (await described(client, TOPIC, "t"))["retention.ms"]
    assert (entry.value, entry.config_source) == ("1", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [each.name for each in entry.synonyms] == ["log.retention.ms"] * 3 + ["log.retention.hours"]
    (for_all,) = (await described(client, BROKER, "")).values()
    assert (for_all.name, for_all.value) == ("log.retention.ms", "2")
    removed = resource(BROKER, "0", ("log.retention.ms", DELETE, None))
    assert await alter(client, removed, resource(BROKER, "")) == [ErrorCode.none] * 2
    assert (await sources())[0] == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


@played
async def test_altered_configs_hold_after_a_restart(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    await alter(client, resource(BROKER, "0", ("message.max.bytes", "100")), resource(TOPIC, "t", ("flush.ms", "9")))
    await broker.stop()
    broker = await world.start()
    assert broker.config.message_max_bytes == 100
    config = broker.logs.get(TopicPartition("t", 0)).config
    assert (config.max_message_bytes, config.flush_ms) == (100, 9)


@played
async def test_configs_that_a_tool_writes_into_the_tree_hold_and_invalid_ones_are_ignored(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    config = {"message.max.bytes": "100", "log.dirs": "/elsewhere", "log.roll.ms": "now"}
    await broker.store.create("/config/brokers/0", ConfigNode(config=config).encode())
    await broker.store.set("/config/topics/t", ConfigNode(config={"retention.ms": "never"}).encode())
    answer = await client.produce("t", world.batch(b"x" * 100))
    assert answer.error_code == ErrorCode.message_too_large
    assert broker.config.log_dirs == ("/data",)
    message = {"resources": [{"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}]}
    (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, message | {"include_synonyms": False}, 4)).results
    assert (result.error_code, "retention.ms" in result.error_message) == (ErrorCode.invalid_config, True)
    assert await alter(client, resource(TOPIC, "t", ("flush.ms", "1"))) == [ErrorCode.invalid_config]
    assert await alter(client, resource(TOPIC, "t", ("retention.ms", DELETE, None))) == [ErrorCode.none]
    assert broker.image.topics["t"].config == {}


def test_keys_without_effect_take_their_defaults_and_others_in_the_tree_are_ignored(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        broker, client = await world.start(), await world.client()
        assert await alter(client, resource(BROKER, "0", ("background.threads", "10"))) == [ErrorCode.none]
        entry = (await described(client, BROKER, "0"))["background.threads"]
        assert (entry.value, entry.read_only, entry.is_sensitive, len(entry.synonyms)) == ("10", False, False, 2)
        assert "{'background.threads': '10'}" in caplog.text
        await broker.store.set("/config/brokers/0", ConfigNode(config={"plugin.password": "xyzzy"}).encode())
        assert "plugin.password" not in await described(client, BROKER, "0")
        assert await alter(client, resource(BROKER, "0", ("log.roll.ms", "1"))) == [ErrorCode.invalid_request]
        changes = ("log.roll.ms", "1"), ("plugin.password", DELETE, None)
        assert await alter(client, resource(BROKER, "0", *changes)) == [ErrorCode.none]
        assert "there is no configuration key 'plugin.password'" in caplog.text
        assert "xyzzy" not in caplog.text

    with caplog.at_level("INFO"):
        play(scene)


@in_world(brokers=2, started=False)
async def test_follower_fetchers_change_while_the_broker_runs(world: World) -> None:
    await world.start(0)  # the controller
    await world.start(1)
    await world.create_topic("t", partitions=8, replication_factor=2)
    admin = await world.client()

    def fetchers() -> int:
        tasks = asyncio.all_tasks()
        return sum(task.get_name().startswith("fetcher-") for task in tasks)

    assert fetchers() == 2
    for wanted, found in (("3", 6), ("1", 2)):
        assert await alter(admin, resource(BROKER, "", ("num.replica.fetchers", wanted))) == [ErrorCode.none]
        await until(lambda found=found: fetchers() == found)
        async with world.producer("writer", acks="all") as producer:
            for partition in range(8):
                await producer.send("t", b"x", partition=partition)

    for number in (1, 0):
        await world.stop(number)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (resource(TOPIC, "gone", ("flush.ms", "1")), ErrorCode.unknown_topic_or_partition),
        (resource(TOPIC, "no/name", ("flush.ms", "1")), ErrorCode.invalid_topic_exception),
        (resource(TOPIC, "t", ("flush.mss", "1")), ErrorCode.invalid_config),
        (resource(TOPIC, "t", ("flush.ms", "-1")), ErrorCode.invalid_config),
        (resource(TOPIC, "t", ("flush.ms", APPEND, "1")), ErrorCode.invalid_config),
        (resource(TOPIC, "t", ("cleanup.policy", APPEND, "forget")), ErrorCode.invalid_config),
        (resource(TOPIC, "t", ("flush.ms", None)), ErrorCode.invalid_request),
        (resource(TOPIC, "t", ("flush.ms", 4, "1")), ErrorCode.invalid_request),
        (resource(TOPIC, "t", ("flush.ms", "1"), ("flush.ms", "2")), ErrorCode.invalid_request),
        (resource(BROKER, "1", ("log.roll.ms", "1")), ErrorCode.invalid_request),
        (resource(BROKER, "zero", ("log.roll.ms", "1")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("log.dirs", "/other")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("log.roll.ms", "0")), ErrorCode.invalid_request),
        (resource(BROKER, "", ("sasl.kerberos.service.name", "kafka")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("sasl.jaas.config", "secret")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("background.threads", "none")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("num.io.threads", "900")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("plugin.password", "xyzzy")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("sasl.enabled.mechanisms", APPEND, "PLAIN")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("leader.replication.throttled.rate", "-1")), ErrorCode.invalid_request),
        (resource(BROKER, "0", ("listener.name.x.max.connections", "5")), ErrorCode.invalid_request),
        (resource(BROKER_LOGGER, "1", ("root", "DEBUG")), ErrorCode.invalid_request),
        (resource(BROKER_LOGGER, "", ("root", "DEBUG")), ErrorCode.invalid_request),
        (resource(BROKER_LOGGER, "0", ("root", "LOUD")), ErrorCode.invalid_config),
        (resource(BROKER_LOGGER, "0", ("odradek.nothing", "INFO")), ErrorCode.invalid_config),
        (resource(BROKER_LOGGER, "0", ("root", DELETE, None)), ErrorCode.invalid_request),
        (resource(BROKER_LOGGER, "0", ("odradek.log", APPEND, "INFO")), ErrorCode.invalid_request),
        (resource(BROKER_LOGGER, "0", ("odradek.log", "DEBUG"), ("root", "LOUD")), ErrorCode.invalid_config),
        (resource(CLIENT_METRICS, "m", ("interval.ms", "1")), ErrorCode.invalid_request),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", "1")), ErrorCode.invalid_config),
        (resource(GROUP, "g", ("consumer.heartbeat.interval.ms", "99999")), ErrorCode.invalid_config),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", "soon")), ErrorCode.invalid_config),
        (resource(GROUP, "g", ("session.timeout.ms", "50000")), ErrorCode.invalid_config),
        (resource(GROUP, "", ("consumer.session.timeout.ms", "50000")), ErrorCode.invalid_request),
        (resource(99, "", ("a", "1")), ErrorCode.invalid_request),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
@played
async def test_a_resource_that_cannot_be_altered_has_a_reason_and_the_others_are_altered(
    world: World, wanted: dict[str, Any], error: ErrorCode, validate_only: bool
) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    await client.create_topic("good")
    good = resource(TOPIC, "good", ("flush.ms", "1"))
    assert await alter(client, wanted, good, validate_only=validate_only) == [error, ErrorCode.none]
    assert broker.image.topics["t"].config == {}
    assert broker.image.topics["good"].config == ({} if validate_only else {"flush.ms": "1"})
    assert not broker.image.broker_configs
    assert not broker.image.group_configs
    assert logging.getLogger("odradek.log").level == logging.NOTSET


@played
async def test_levels_of_loggers_change_while_the_broker_runs(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start()
    client = await world.client()

    async def levels(*names: str) -> list[str]:
        entries = await described(client, BROKER_LOGGER, "0")
        assert {entry.config_source for entry in entries.values()} == {ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG}
        return [entries[name].value for name in names]

    caplog.set_level("INFO")  # restores the levels, too
    caplog.set_level("INFO", "odradek")
    caplog.set_level("INFO", "odradek.log")
    changes = resource(BROKER_LOGGER, "0", ("odradek", "WARN"), ("odradek.log", "TRACE"))
    assert await alter(client, changes, validate_only=True) == [ErrorCode.none]
    assert await levels("root", "odradek", "odradek.log") == ["INFO", "INFO", "INFO"]
    assert await alter(client, changes) == [ErrorCode.none]
    assert await levels("root", "odradek", "odradek.log", "odradek.broker") == ["INFO", "WARN", "TRACE", "WARN"]
    assert logging.getLogger("odradek.log").isEnabledFor(logging.DEBUG)
    removed = resource(BROKER_LOGGER, "0", ("odradek", DELETE, None), ("odradek.log", DELETE, None))
    assert await alter(client, removed, resource(BROKER_LOGGER, "0")) == [ErrorCode.invalid_request] * 2
    assert await alter(client, removed) == [ErrorCode.none]
    assert await levels("odradek", "odradek.log") == ["INFO", "INFO"]
    assert "Updated the log level of odradek.log to TRACE" in caplog.text
    message = {"resources": [resource(BROKER_LOGGER, "0", ("odradek", "WARN"))], "validate_only": False}
    answer = await client.ask(ApiKey.ALTER_CONFIGS, message, 2)
    assert [each.error_code for each in answer.responses] == [ErrorCode.invalid_request]


@played
async def test_a_resource_that_comes_twice_is_an_invalid_request_in_both_places(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    twice = [resource(TOPIC, "t", ("flush.ms", "1")), resource(TOPIC, "t", ("flush.ms", "2"))]
    assert await alter(client, *twice, resource(BROKER, "0", ("log.roll.ms", "1"))) == [
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.none,
    ]
    assert broker.image.topics["t"].config == {}
    assert broker.config.log_roll_ms == 1


@played
async def test_resources_are_listed_by_kind(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")

    async def listed(version: int, *kinds: int) -> Any:
        message = {"resource_types": list(kinds)}
        answer = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, message, version)
        resources = sorted((each.resource_type, each.resource_name) for each in answer.config_resources)
        return resources if answer.error_code == ErrorCode.none else answer.error_code

    assert await listed(0) == []
    assert await listed(1) == [(TOPIC, "t"), (BROKER, "0"), (BROKER_LOGGER, "0")]
    assert await listed(1, BROKER_LOGGER) == [(BROKER_LOGGER, "0")]
    assert await listed(1, TOPIC) == [(TOPIC, "t")]
    assert await listed(1, BROKER, CLIENT_METRICS) == [(BROKER, "0")]
    assert await listed(1, GROUP) == []
    await alter(client, resource(GROUP, "g/1", ("consumer.session.timeout.ms", "50000")))
    assert await listed(1, GROUP) == [(GROUP, "g/1")]
    assert await listed(1, 3) == ErrorCode.unsupported_version


@played
async def test_a_key_that_is_read_at_the_start_only_is_read_only(world: World) -> None:
    await world.start()
    client = await world.client()
    entries = await described(client, BROKER, "0")
    assert entries["broker.id"].read_only
    assert entries["log.retention.hours"].read_only
    assert not entries["max.connections"].read_only


def test_many_resources_are_listed_in_turns() -> None:
    broker: Any = SimpleNamespace(image=SimpleNamespace(topics=range(TURN), brokers={}, group_configs={}))
    context: Any = SimpleNamespace(api_version=1)
    message: Any = SimpleNamespace(resource_types=())
    steps = list_config_resources.handle(broker, context, message)
    assert one_turn(steps) is None
    answer: Any = at_once(steps)
    assert len(answer["config_resources"]) == TURN
