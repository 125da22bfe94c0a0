"""M1: who is there, who leads what; topics that are asked for come into being where that is allowed."""

import uuid
from typing import Any

import pytest

from odradek.broker.controller import auto_topic_creation_manager
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.world import Play, World
from tests.world.scenes import played

METADATA = ApiKey.METADATA


NO_OPERATIONS = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}


def wanted(*names: str, **more: Any) -> dict[str, Any]:
    return {**NO_OPERATIONS, "topics": [{"name": name, "topic_id": None} for name in names], **more}


@pytest.mark.parametrize("version", range(14))
def test_every_version_returns_brokers_and_partitions(play: Play, version: int) -> None:
    async def scene(world: World) -> None:
        await world.start()
        client = await world.client()
        created = await client.create_topic("t", partitions=2)
        answer = await client.ask(METADATA, wanted("t"), version)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(0, "broker", 9092)]
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (0, "t")
        assert [(each.partition_index, each.leader_id, each.isr_nodes) for each in topic.partitions] == [
            (0, 0, (0,)),
            (1, 0, (0,)),
        ]
        if version >= 2:
            assert len(answer.cluster_id) == 22
        if version >= 10:
            assert topic.topic_id == created.topic_id
            by_id = await client.ask(
                METADATA, {**wanted(), "topics": [{"name": None, "topic_id": created.topic_id}]}, version
            )
            if version >= 12:
                assert by_id.topics[0].name == "t"

    async def old_versions_have_no_nulls(world: World) -> None:
        await world.start()
        client = await world.client()
        created = await client.create_topic("t")
        answer = await client.ask(
            METADATA, {**wanted(), "topics": [{"name": "t", "topic_id": created.topic_id}]}, version
        )
        assert answer.topics[0].error_code == ErrorCode.invalid_request

    play(old_versions_have_no_nulls if version in (10, 11) else scene)


@played
async def test_all_topics_are_requested_by_null_and_in_version_0_by_an_empty_list(world: World) -> None:
    await world.start()
    client = await world.client()
    for name in ("a", "b"):
        await client.create_topic(name)
    assert {each.name for each in (await client.ask(METADATA, {**wanted(), "topics": None}, 9)).topics} == {
        "a",
        "b",
    }
    assert {each.name for each in (await client.ask(METADATA, wanted(), 0)).topics} == {"a", "b"}
    assert (await client.ask(METADATA, wanted(), 9)).topics == ()


@played
async def test_an_absent_topic_is_created_and_ready_when_the_answer_comes(world: World) -> None:
    await world.start(num_partitions=3)
    client = await world.client()
    (topic,) = (await client.ask(METADATA, wanted("new", allow_auto_topic_creation=True), 9)).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert (await client.produce("new", world.batch(b"a"), partition=2)).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 3])
@played
async def test_a_client_that_cannot_forbid_creation_sees_that_its_deleted_topic_is_gone(
    world: World, version: int
) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await world.broker.controller.delete_topics(["t"])
    (topic,) = (await client.ask(METADATA, wanted("t"), version)).topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.unknown_topic_or_partition, 0)
    await world.pass_time(1)
    (topic,) = (await client.ask(METADATA, wanted("t"), version)).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1)


@played
async def test_topics_above_the_limit_of_creations_are_unknown_until_the_next_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_topic_creation_manager, "_MOST_CREATIONS", 2)
    await world.start()
    client = await world.client()
    for unknown in (2, 0):
        answer = await client.ask(METADATA, wanted(*"abcd", allow_auto_topic_creation=True), 9)
        codes = [each.error_code for each in answer.topics]
        assert codes.count(ErrorCode.unknown_topic_or_partition) == unknown
        assert codes.count(ErrorCode.none) == 4 - unknown


def test_an_absent_topic_stays_absent_where_creation_is_not_wanted(play: Play) -> None:
    async def scene(world: World) -> None:
        await world.start()
        client = await world.client()
        (topic,) = (await client.ask(METADATA, wanted("new", allow_auto_topic_creation=False), 9)).topics
        assert topic.error_code == ErrorCode.unknown_topic_or_partition

    async def forbidden(world: World) -> None:
        await world.start(auto_create_topics_enable=False)
        client = await world.client()
        for version in (1, 9):
            (topic,) = (await client.ask(METADATA, wanted("new"), version)).topics
            assert topic.error_code == ErrorCode.unknown_topic_or_partition

    play(scene)
    play(forbidden)


@played
async def test_names_that_can_not_be_and_ids_that_are_not_have_their_errors(world: World) -> None:
    await world.start()
    client = await world.client()
    answer = await client.ask(METADATA, wanted("no such name", "..", "", "x" * 250), 9)
    assert {each.error_code for each in answer.topics} == {ErrorCode.invalid_topic_exception}
    by_id = await client.ask(METADATA, {**wanted(), "topics": [{"name": None, "topic_id": uuid.UUID(int=7)}]}, 12)
    assert by_id.topics[0].error_code == ErrorCode.unknown_topic_id
    assert by_id.topics[0].name is None


@played
async def test_topics_that_collide_in_metrics_are_not_created_automatically(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("a.b")
    (topic,) = (await client.ask(METADATA, wanted("a_b"), 9)).topics
    assert topic.error_code == ErrorCode.invalid_topic_exception


@played
async def test_the_same_question_is_answered_anew_when_the_cluster_has_changed(world: World) -> None:
    await world.start()
    client = await world.client()
    question = wanted("t", allow_auto_topic_creation=False)
    for _ in range(2):
        assert (await client.ask(METADATA, question, 9)).topics[0].error_code != 0
    await client.create_topic("t")
    for _ in range(2):
        assert (await client.ask(METADATA, question, 9)).topics[0].error_code == 0
    await client.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 1000}, 5)
    assert (await client.ask(METADATA, question, 9)).topics[0].error_code != 0


@played
async def test_authorized_operations_are_returned_if_requested(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = await client.ask(METADATA, wanted("t", **asked), 8)
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    assert (await client.ask(METADATA, wanted("t"), 8)).cluster_authorized_operations == -(2**31)


@played
async def test_automatic_creation_is_done_once_for_concurrent_requests(world: World) -> None:
    await world.start()
    clients = [await world.client() for _ in range(10)]
    for client in clients:
        client.send(METADATA, wanted("new"), 9)
    for client in clients:
        assert (await client.answer()).topics[0].error_code == 0


@pytest.mark.parametrize("version", range(3))
@played
async def test_describe_cluster_returns_the_brokers_of_metadata(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    answer = await client.ask(
        ApiKey.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True, "include_fenced_brokers": False},
        version,
    )
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(0, "broker", 9092)]
    assert (answer.controller_id, len(answer.cluster_id)) == (0, 22)
    assert answer.cluster_authorized_operations > 0
    if version >= 1:
        controllers = await client.ask(
            ApiKey.DESCRIBE_CLUSTER,
            {"include_cluster_authorized_operations": False, "endpoint_type": 2, "include_fenced_brokers": False},
            version,
        )
        assert controllers.error_code == ErrorCode.mismatched_endpoint_type
