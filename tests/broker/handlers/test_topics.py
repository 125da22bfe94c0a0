"""M1, M10: topics are created, described and deleted, each or not at all."""

from typing import Any

import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import played


def new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
        **more,
    }


async def create(client: WireClient, *topics: dict[str, Any], version: int = 7, **more: Any) -> list[Any]:
    answer = await client.ask(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 1000, **more}, version)
    return list(answer.topics)


@pytest.mark.parametrize("version", range(2, 8))
@played
async def test_every_version_creates(world: World, version: int) -> None:
    await world.start(num_partitions=4)
    client = await world.client()
    configs = [{"name": "retention.ms", "value": "1234"}]
    (made,) = await create(client, new("t", 2, configs=configs), version=version)
    assert (made.name, made.error_code) == ("t", 0)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        assert {each.name: each.value for each in made.configs}["retention.ms"] == "1234"
    (defaults,) = await create(client, new("d", -1, -1), version=version)
    assert defaults.error_code == 0
    assert (await client.produce("t", world.batch(b"a"), partition=1)).error_code == 0


@played
async def test_topics_that_cannot_be_created_have_a_reason_and_the_others_are_created(world: World) -> None:
    await world.start()
    client = await world.client()
    await create(client, new("there"))
    one = {"partition_index": 0, "broker_ids": [0]}
    results = await create(
        client,
        new("there"),
        new("bad name"),
        new("p", 0),
        new("r", 1, 0),
        new("r2", 1, 2),
        new("c", configs=[{"name": "no.such.key", "value": "1"}]),
        new("a", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [9]}]),
        new("a2", -1, -1, assignments=[one, one]),
        new("twice"),
        new("twice"),
        new("good", -1, -1, assignments=[one]),
    )
    assert {each.name: each.error_code for each in results} == {
        "there": ErrorCode.topic_already_exists,
        "bad name": ErrorCode.invalid_topic_exception,
        "p": ErrorCode.invalid_partitions,
        "r": ErrorCode.invalid_replication_factor,
        "r2": ErrorCode.invalid_replication_factor,
        "c": ErrorCode.invalid_config,
        "a": ErrorCode.invalid_replica_assignment,
        "a2": ErrorCode.invalid_replica_assignment,
        "twice": ErrorCode.invalid_request,
        "good": ErrorCode.none,
    }
    assert all(each.error_message for each in results if each.error_code)


@played
async def test_validation_alone_creates_nothing(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    (result,) = await create(client, new("t", 3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert not broker.image.topics


@pytest.mark.parametrize("version", range(1, 7))
@played
async def test_every_version_deletes_and_the_name_is_free_again(world: World, version: int) -> None:
    broker = await world.start()
    client = await world.client()
    created = await client.create_topic("t")
    await client.produce("t", world.batch(b"old"))
    message: dict[str, Any] = {"topic_names": ["t", "nowhere"], "timeout": 1000}
    if version >= 6:
        message = {
            "topics": [{"name": None, "topic_id": created.topic_id}, {"name": "nowhere", "topic_id": None}],
            "timeout": 1000,
        }
    answer = await client.ask(ApiKey.DELETE_TOPICS, message, version)
    codes = {each.name: each.error_code for each in answer.responses}
    assert codes == {"t": 0, "nowhere": ErrorCode.unknown_topic_or_partition}
    assert not broker.image.topics
    assert (await client.create_topic("t")).topic_id != created.topic_id
    fetched = await client.fetch("t", 0)
    assert (fetched.high_watermark, fetched.records or b"") == (0, b"")


@played
async def test_deletion_can_be_forbidden(world: World) -> None:
    await world.start(delete_topic_enable=False)
    client = await world.client()
    await client.create_topic("t")
    answer = await client.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 1000}, 5)
    assert answer.responses[0].error_code == ErrorCode.topic_deletion_disabled


@pytest.mark.parametrize("version", range(1, 5))
@played
async def test_configurations_are_described_with_their_sources(world: World, version: int) -> None:
    await world.start(log_retention_bytes=777)
    client = await world.client()
    await client.create_topic("t", config={"retention.ms": "1234"})
    resources = [
        {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "retention.bytes"]},
        {"resource_type": 4, "resource_name": "0", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "7"},
        {"resource_type": 2, "resource_name": "nowhere"},
        {"resource_type": 99, "resource_name": "x"},
    ]
    message = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, message, version)
    topic, broker, *wrong = answer.results
    found = {each.name: each for each in topic.configs}
    assert set(found) == {"retention.ms", "retention.bytes"}
    own, inherited = found["retention.ms"], found["retention.bytes"]
    assert (own.value, own.config_source, own.synonyms[0].value) == ("1234", 1, "1234")
    assert (inherited.value, inherited.config_source) == ("777", 4)
    assert "log.dirs" in {each.name for each in broker.configs}
    assert [each.error_code for each in wrong] == [
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
    ]
    if version >= 3:
        assert own.documentation
