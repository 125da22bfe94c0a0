"""Topics through the controller: asked for, or written into the tree by somebody's tool (M9, M10)."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.image import TopicImage
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import DeleteTopicsNode, TopicNode
from odradek.model import TopicPartition
from tests.world.scenes import played


def codes(results: Any) -> list[str | None]:
    return [None if each.error is None else each.error.code.name for each in results]


@played
async def test_a_created_topic_is_in_the_tree_and_in_the_image_when_the_answer_comes(world) -> None:
    """M9: the nodes of a topic, and their order."""
    broker = await world.started()
    [result] = await broker.create_topics([NewTopic(name="flights", config={"retention.ms": "5"})])
    topic = broker.image.topics["flights"]
    assert result.plan.topic_id == topic.topic_id
    assert broker.image.topic_by_id(topic.topic_id) is topic
    assert world.images[0][-1] is broker.image
    assert {number: (each.leader, each.leader_epoch, each.isr) for number, each in topic.partitions.items()} == {
        0: (0, 0, (0,)),
        1: (0, 0, (0,)),
    }
    node = await world.value("/brokers/topics/flights")
    assert (node["version"], node["partitions"]) == (3, {"0": [0], "1": [0]})
    assert await world.value("/brokers/topics/flights/partitions/1/state") == {
        "controller_epoch": 1,
        "leader": 0,
        "version": 1,
        "leader_epoch": 0,
        "isr": [0],
    }
    assert await world.value("/config/topics/flights") == {"version": 1, "config": {"retention.ms": "5"}}
    await broker.stop()


@played
async def test_each_topic_of_a_request_is_created_or_has_an_error(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="old.one")])
    wanted = [
        NewTopic(name="good"),
        NewTopic(name="old.one"),
        NewTopic(name="old_one"),
        NewTopic(name="b@d"),
        NewTopic(name="wide", replication_factor=2),
        NewTopic(name="odd", config={"no.such": "key"}),
    ]
    expected = [
        None,
        "topic_already_exists",
        "invalid_topic_exception",
        "invalid_topic_exception",
        "invalid_replication_factor",
        "invalid_config",
    ]
    assert codes(await broker.create_topics(wanted, validate_only=True)) == expected
    assert sorted(broker.image.topics) == ["old.one"]
    assert codes(await broker.create_topics(wanted)) == expected
    assert sorted(broker.image.topics) == ["good", "old.one"]
    await broker.stop()


@played
async def test_of_two_requests_that_create_one_topic_at_once_one_is_refused(world) -> None:
    broker = await world.started()
    [one], [two] = await asyncio.gather(*(broker.create_topics([NewTopic(name="a")]) for _ in range(2)))
    assert sorted(codes([one, two]), key=str) == [None, "topic_already_exists"]
    await broker.stop()


@played
async def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(world) -> None:
    """M10."""
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a"), NewTopic(name="b", config={"retention.ms": "5"})])
    first = broker.image.topics["a"].topic_id
    wanted = ["a", broker.image.topics["b"].topic_id, "c", UUID(int=5)]
    results = await broker.delete_topics(wanted)
    assert codes(results) == [None, None, "unknown_topic_or_partition", "unknown_topic_id"]
    assert [each.name for each in results] == ["a", "b", "c", None]
    assert [each.topic_id for each in results] == [first, wanted[1], None, UUID(int=5)]
    assert [each.name for each in results] == ["a", "b", "c", None]
    assert (dict(broker.image.topics), broker.image.deleting) == ({}, frozenset())
    assert await world.everything() == ["/brokers/topics"]
    assert await world.store.children("/admin/delete_topics") == []
    assert await world.store.children("/config/topics") == []
    assert codes(await broker.create_topics([NewTopic(name="a")])) == [None]
    assert broker.image.topics["a"].topic_id != first
    await broker.stop()


@played
async def test_replicas_are_stopped_before_the_nodes_of_a_topic_are_removed(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a")])
    await broker.delete_topics(["a"])
    hidden = [image for image in world.images[0] if "a" in image.deleting]
    assert hidden
    assert all("a" not in image.topics for image in hidden)
    await broker.stop()


@played
async def test_deletion_may_be_forbidden(world) -> None:
    broker = await world.started(config=BrokerConfig(delete_topic_enable=False))
    await broker.create_topics([NewTopic(name="a")])
    assert codes(await broker.delete_topics(["a"])) == ["topic_deletion_disabled"]
    await world.store.create("/admin/delete_topics/a")
    await world.until_childless("/admin/delete_topics")
    assert list(broker.image.topics) == ["a"]
    await broker.stop()


@played
async def test_writing_the_nodes_has_the_effect_of_requests(world) -> None:
    """M10: an operator's tool creates a topic, adds a partition, and deletes in both of Kafka's forms."""
    broker = await world.started()
    store = world.store
    await store.create("/brokers/topics/a", b'{"version":1,"partitions":{"0":[0]}}')
    await world.until(lambda: "a" in broker.image.topics and broker.image.topics["a"].partitions[0].has_leader)
    topic = broker.image.topics["a"]
    assert broker.image.topic_by_id(topic.topic_id) is topic
    node = await store.get("/brokers/topics/a")
    decoded = TopicNode.decode("", node.data)
    assert decoded.topic_id == topic.topic_id
    more = TopicNode(replicas={0: (0,), 1: (0,)}, topic_id=topic.topic_id)
    await store.set("/brokers/topics/a", more.encode(), node.version)
    await world.until(lambda: len(broker.image.topics["a"].partitions) == 2)
    await world.until(lambda: broker.image.topics["a"].partitions[1].has_leader)
    await store.create("/config/topics/a", b'{"version":1,"config":{"retention.ms":"7"}}')
    await world.until(lambda: dict(broker.image.topics["a"].config) == {"retention.ms": "7"})
    await store.create("/admin/delete_topics/a")
    await world.until(lambda: "a" not in broker.image.topics and not broker.image.deleting)
    assert await world.everything() == ["/brokers/topics"]
    await broker.create_topics([NewTopic(name="b"), NewTopic(name="c")])
    await store.set("/admin/delete_topics", DeleteTopicsNode(topics=("b", "unknown")).encode())
    await world.until(lambda: list(broker.image.topics) == ["c"] and not broker.image.deleting)
    assert (await store.get("/admin/delete_topics")).data == b""
    assert await store.children("/admin/delete_topics") == []
    await broker.stop()


@played
async def test_a_topic_that_is_written_while_another_is_initialized_gets_leaders(world) -> None:
    broker = await world.started()
    initialize = ControllerEpoch.initialize

    async def after_another_topic(epoch: ControllerEpoch, topic: TopicImage, *, topic_id: UUID | None = None) -> None:
        if topic.name == "a":
            await world.store.create("/brokers/topics/b", b'{"version":1,"partitions":{"0":[0]}}')
            await asyncio.sleep(1)  # the watch fires
        await initialize(epoch, topic, topic_id=topic_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControllerEpoch, "initialize", after_another_topic)
        await world.store.create("/brokers/topics/a", b'{"version":1,"partitions":{"0":[0]}}')
        await world.until(lambda: "b" in broker.image.topics and broker.image.topics["b"].partitions[0].has_leader)
    assert broker.image.topics["a"].partitions[0].has_leader
    await broker.stop()


@played
async def test_a_requested_deletion_of_an_unknown_topic_is_removed(world) -> None:
    broker = await world.started()
    await world.store.create("/admin/delete_topics/never")
    await world.until_childless("/admin/delete_topics")
    assert broker.is_controller
    await broker.stop()


@played
async def test_a_broken_state_is_left_alone(world, caplog) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a")])
    path = paths.partition_state(TopicPartition("a", 0))
    await world.store.set(path, b"{")
    world.kill(broker)
    again = await world.started()
    assert not again.image.topics["a"].partitions[0].has_leader
    assert again.image.topics["a"].partitions[1].has_leader
    assert (await world.store.get(path)).data == b"{"
    assert f"node {path} is broken" in caplog.text
    await again.stop()


@played
async def test_blocks_of_producer_ids_are_different_for_all_brokers(world) -> None:
    one, two = await world.started(1), await world.started(2)
    blocks = await asyncio.gather(*(broker.allocate_producer_ids() for broker in (one, two, one, two)))
    taken = [producer_id for block in blocks for producer_id in block]
    assert len(taken) == len(set(taken)) == 4000
    assert (await world.value("/latest_producer_id_block"))["block_end"] == str(max(taken))
    await one.stop()
    await two.stop()
