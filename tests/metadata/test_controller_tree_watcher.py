"""Keeping an image up to date with the tree, whatever the nodes contain."""

import asyncio
from uuid import UUID

import pytest

from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, ClusterImage
from odradek.metadata.nodes import (
    BrokerNode,
    ConfigNode,
    ControllerNode,
    DeleteTopicsNode,
    PartitionStateNode,
    TopicNode,
)
from odradek.metadata.reading import read_subtree
from odradek.metadata.tree_watchers import ControllerTreeWatcher
from odradek.model import TopicPartition, UnavailableError
from odradek.stores import MemoryStore, MemoryTree

pytestmark = pytest.mark.asyncio


def state(leader: int = 0) -> bytes:
    return PartitionStateNode(leader=leader, leader_epoch=leader, isr=(leader,), controller_epoch=1).encode()


class WatchedTree:
    """A tree that a test writes to, and a watcher that reads it."""

    def __init__(self, *, deletes: bool = True) -> None:
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.reader = MemoryStore(self.tree)
        self.woken = asyncio.Event()
        self.watcher = ControllerTreeWatcher(self.reader, wake=self.woken.set, deletes=deletes)
        self.image = ClusterImage()

    async def begin(self) -> None:
        for path in paths.PERSISTENT_ROOTS:
            await self.store.create(path)
        self.watcher.start()
        await self.look()

    async def create_topic(self, name: str, *, topic_id: int = 1, states: int = 1) -> None:
        await self.store.create(
            paths.topic(name), TopicNode(replicas={0: (0,), 1: (0,)}, topic_id=UUID(int=topic_id)).encode()
        )
        await self.store.create(paths.partitions(name))
        for number in range(states):
            await self.store.create(paths.partition(TopicPartition(name, number)))
            await self.store.create(paths.partition_state(TopicPartition(name, number)), state())

    async def look(self) -> ClusterImage:
        self.image = await self.watcher.refresh(self.image)
        self.woken.clear()
        return self.image

    async def changed(self) -> ClusterImage:
        await asyncio.wait_for(self.woken.wait(), 10)
        await asyncio.sleep(0)  # the events of all changes have come; since Python 3.12, wait_for returns at once
        return await self.look()


async def watched_tree(*, deletes: bool = True) -> WatchedTree:
    made = WatchedTree(deletes=deletes)
    await made.begin()
    return made


async def test_brokers_and_the_controller_come_and_go() -> None:
    watched = await watched_tree()
    endpoint = ListenerAddress("PLAINTEXT", "host", 1)
    broker = BrokerNode(endpoints=(endpoint,), timestamp_ms=1, rack="r").encode()
    other = MemoryStore(watched.tree)
    await other.create(paths.broker(3), broker, ephemeral=True)
    await other.create(paths.CONTROLLER_EPOCH, b"7")
    await other.create(paths.CONTROLLER, ControllerNode(broker_id=3, timestamp_ms=1).encode(), ephemeral=True)
    image = await watched.changed()
    assert (image.brokers[3].endpoints, image.brokers[3].rack) == ((endpoint,), "r")
    assert (image.controller_id, image.controller_epoch) == (3, 7)
    first = image.brokers[3].epoch
    await other.close()
    image = await watched.changed()
    assert (dict(image.brokers), image.controller_id) == ({}, -1)
    await watched.store.create(paths.broker(3), broker, ephemeral=True)
    assert (await watched.changed()).brokers[3].epoch > first


async def test_a_topic_image_has_the_content_of_its_nodes() -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=9)
    await watched.store.create(paths.topic_config("a"), ConfigNode(config={"retention.ms": "5"}).encode())
    topic = (await watched.changed()).topics["a"]
    assert (topic.topic_id, dict(topic.config)) == (UUID(int=9), {"retention.ms": "5"})
    assert (topic.partitions[0].leader, topic.partitions[0].state_version) == (0, 0)
    missing = topic.partitions[1]
    assert (missing.leader, missing.leader_epoch, missing.state_version) == (-1, -1, -1)


@pytest.mark.parametrize(
    "change",
    [
        lambda watched: watched.store.create(paths.topic_config("a"), ConfigNode(config={"flush.ms": "1"}).encode()),
        lambda watched: watched.store.set(
            paths.topic("a"), TopicNode(replicas={0: (1,)}, topic_id=UUID(int=1)).encode()
        ),
    ],
)
async def test_a_change_of_a_topic_is_seen_and_others_are_left_alone(change) -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.create_topic("b", topic_id=2)
    old = await watched.changed()
    await change(watched)
    new = await watched.changed()
    assert list(new.changed_topics(old)) == ["a"]
    assert new.topics["b"] is old.topics["b"]


async def test_partition_states_are_read_again_when_the_topic_node_changes() -> None:
    watched = await watched_tree()
    await watched.create_topic("a")
    await watched.changed()
    await watched.store.set(paths.partition_state(TopicPartition("a", 0)), state(4))
    await asyncio.sleep(0)
    assert not watched.woken.is_set()
    watched.watcher.mark(topics=["a"])
    assert (await watched.changed()).topics["a"].partitions[0].leader == 4


async def test_without_changes_the_image_is_the_same_object() -> None:
    watched = await watched_tree()
    await watched.create_topic("a")
    old = await watched.changed()
    watched.watcher.mark_all_changed()
    assert await watched.look() is old


async def test_a_topic_to_be_deleted_is_hidden_at_once() -> None:
    watched = await watched_tree()
    await watched.create_topic("a")
    await watched.changed()
    await watched.store.create(paths.delete_topic("a"))
    await watched.store.create(paths.delete_topic("never was"))
    image = await watched.changed()
    assert (dict(image.topics), image.deleting) == ({}, {"a"})
    assert watched.watcher.requested_deletions == {"a", "never was"}
    await watched.store.delete(paths.delete_topic("a"))
    image = await watched.changed()
    assert ("a" in image.topics, image.deleting) == (True, frozenset())


async def test_a_topic_is_not_hidden_where_deletion_is_forbidden() -> None:
    watched = await watched_tree(deletes=False)
    await watched.create_topic("a")
    await watched.store.create(paths.delete_topic("a"))
    image = await watched.changed()
    assert ("a" in image.topics, image.deleting) == (True, frozenset())


async def test_deletions_listed_in_the_old_form_are_found() -> None:
    watched = await watched_tree()
    await watched.create_topic("a")
    await watched.changed()
    await watched.store.set(paths.DELETE_TOPICS, DeleteTopicsNode(topics=("a", "b")).encode())
    await watched.changed()
    assert watched.watcher.listed_deletions == (("a",), 1)


async def test_a_deleted_topic_is_removed_and_may_be_recreated() -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.changed()
    for path in reversed(await read_subtree(watched.store, paths.topic("a"))):
        await watched.store.delete(path)
    assert dict((await watched.changed()).topics) == {}
    await watched.create_topic("a", topic_id=2)
    assert (await watched.changed()).topics["a"].topic_id == UUID(int=2)


async def test_broken_nodes_are_named_in_the_log_and_left_alone(caplog) -> None:
    watched = await watched_tree()
    await watched.create_topic("good")
    await watched.store.create(paths.topic("bad"), b"{")
    await watched.create_topic("worse")
    await watched.store.set(paths.partition_state(TopicPartition("worse", 0)), b"?")
    await watched.store.create(paths.topic_config("worse"), b"[]")
    await watched.store.create(paths.broker(1), b"nonsense")
    await watched.store.create(f"{paths.BROKER_IDS}/x", b"")
    await watched.store.create(paths.CONTROLLER, b"1")
    await watched.store.set(paths.DELETE_TOPICS, b"everything")
    image = await watched.changed()
    assert sorted(image.topics) == ["good", "worse"]
    broken = image.topics["worse"].partitions[0]
    assert (broken.leader, broken.leader_epoch, broken.state_version) == (-1, -1, 1)
    for path in (
        "/brokers/topics/bad",
        "/brokers/topics/worse/partitions/0/state",
        "/config/topics/worse",
        "/brokers/ids/1",
        "/controller",
        "/admin/delete_topics",
    ):
        assert f"node {path} is broken" in caplog.text
    said = len(caplog.records)
    watched.watcher.mark_all_changed()
    await watched.look()
    assert len(caplog.records) == said, "once is enough"
    await watched.store.set(paths.topic("bad"), b"[")
    await watched.changed()
    assert caplog.text.count("node /brokers/topics/bad is broken") == 2, "unless somebody wrote it again"
    assert (await watched.store.get(paths.topic("bad"))).data == b"["
    await watched.store.set(paths.topic("bad"), TopicNode(replicas={0: (0,)}).encode())
    assert (await watched.changed()).topics["bad"].topic_id == UNNAMED


async def test_the_last_known_state_stays_when_a_node_is_broken() -> None:
    """An unreadable topic must not be treated as deleted: its logs would be deleted."""
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.store.create(paths.topic_config("a"), ConfigNode(config={"retention.ms": "-1"}).encode())
    await watched.store.create(paths.broker_config(None), ConfigNode(config={"log.retention.ms": "-1"}).encode())
    await watched.store.create(paths.CONTROLLER_EPOCH, b"7")
    before = await watched.changed()
    await watched.store.set(paths.topic("a"), b"{")
    await watched.store.set(paths.topic_config("a"), b"{")
    await watched.store.set(paths.broker_config(None), b"{")
    await watched.store.set(paths.CONTROLLER_EPOCH, b"seven")
    watched.watcher.mark_all_changed()
    assert await watched.look() == before
    await watched.store.set(paths.topic("a"), TopicNode(replicas={0: (0,)}, topic_id=UUID(int=1)).encode())
    after = (await watched.changed()).topics["a"]
    assert (after.config, after.is_config_known) == ({"retention.ms": "-1"}, True)


async def test_a_broken_topic_can_be_deleted() -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.changed()
    await watched.store.set(paths.topic("a"), b"{")
    await watched.store.create(paths.delete_topic("a"))
    image = await watched.changed()
    assert (dict(image.topics), image.deleting) == ({}, {"a"})


async def test_a_configuration_that_was_never_read_is_marked_as_unknown() -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.store.create(paths.topic_config("a"), b"{")
    assert not (await watched.changed()).topics["a"].is_config_known
    await watched.store.set(paths.topic_config("a"), ConfigNode(config={}).encode())
    assert (await watched.changed()).topics["a"].is_config_known


async def test_after_an_error_all_changes_are_read_again(monkeypatch) -> None:
    watched = await watched_tree()
    await watched.create_topic("a", topic_id=1)
    await watched.changed()
    await watched.create_topic("b", topic_id=2)
    await watched.store.set(paths.partition_state(TopicPartition("a", 0)), state(4))
    real = watched.reader.get_many
    calls = 0

    async def fails_late(wanted):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise UnavailableError("gone for now")
        return await real(wanted)

    monkeypatch.setattr(watched.reader, "get_many", fails_late)
    with pytest.raises(UnavailableError):
        await watched.look()
    image = await watched.changed()
    assert sorted(image.topics) == ["a", "b"]
    assert image.topics["a"].partitions[0].leader == 4


async def test_a_stopped_follower_publishes_nothing() -> None:
    watched = await watched_tree()
    await watched.create_topic("a")
    await watched.changed()
    watched.watcher.stop()
    await watched.store.set(paths.topic("a"), b"")
    await watched.create_topic("b")
    await asyncio.sleep(0)
    assert not watched.woken.is_set()


async def test_broker_configurations_are_added_changed_and_removed() -> None:
    watched = await watched_tree()
    await watched.store.create(paths.broker_config(None), ConfigNode(config={"log.roll.ms": "1"}).encode())
    await watched.store.create(paths.broker_config(3), ConfigNode(config={"log.roll.ms": "2"}).encode())
    await watched.store.create(f"{paths.BROKER_CONFIGS}/someone", b"")
    assert (await watched.changed()).broker_configs == {None: {"log.roll.ms": "1"}, 3: {"log.roll.ms": "2"}}
    await watched.store.set(paths.broker_config(3), ConfigNode(config={}).encode())
    assert (await watched.changed()).broker_configs == {None: {"log.roll.ms": "1"}}
    await watched.store.set(paths.broker_config(3), b"not JSON")
    before = watched.image
    assert await watched.changed() is before
    await watched.store.delete(paths.broker_config(None))
    assert (await watched.changed()).broker_configs == {}
